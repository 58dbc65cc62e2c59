package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"blockd/internal/term"
	"blockd/mail/msgauth"
	"blockd/policy/printout"
)

// What people type is asked as `blockd check` has it, and answered in its words.

// The headers of such an answer.
const (
	BlockedHeader = "Blockd-Blocked" // "1" if one of the senders is blocked, or else "0"
	FaultHeader   = "Blockd-Fault"   // why the answers end before the questions do
)

// MaxTexts is how many texts one request may have: what `blockd check -` reads at once has some 2,500.
const MaxTexts = 4 * maxSenders

// Message is how saved messages are explained.
type Message struct {
	Resolver *msgauth.Resolver // nil: they are not
	Max      int64             // octets
}

// Serving says by what the daemon answers.
type Serving struct {
	Generation    string `json:"generation"`
	Index         string `json:"index" doc:"the path of the index file"`
	Configuration string `json:"configuration" doc:"the SHA-256 of what the configuration in force means, in a form of this version's own"`
}

func (s *Server) serving(w http.ResponseWriter, r *http.Request) {
	var now Serving
	if s.settings.Serving != nil {
		now = s.settings.Serving()
	}
	sendTagged(w, r, now)
}

// typed is the query of texts, and of a message.
type typed struct {
	asker printout.Asker
	whole bool // the body is one text
	mail  printout.Mail
}

// readTyped reads the query, whose parameters may each be there once.
func (s *Server) readTyped(r *http.Request) (q typed, err error) {
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return q, err
	}
	one := func(name string) string {
		if n := len(query[name]); n > 1 {
			err = fmt.Errorf("want one parameter %s, have %d", name, n)
		} else if n == 1 {
			return query[name][0]
		}
		return ""
	}
	for _, name := range []string{"explain", "whole", "paint"} {
		if text := one(name); text != "" && text != "0" && text != "1" {
			return q, fmt.Errorf("%s: want 0 or 1", name)
		}
	}
	q.asker = printout.Asker{Checker: s.checker, Recipient: one("recipient"), Private: s.mayKnow(r), Hides: s.hides(r),
		Form: printout.Form{JSON: accepts(r, typeStream[0]), Explain: one("explain") == "1", Paint: term.Colours(one("paint") == "1")}}
	q.whole, q.mail = one("whole") == "1", printout.Mail{File: one("file"), Helo: one("helo")}
	if len(query["sender"]) > 0 {
		sender := one("sender")
		q.mail.Sender = &sender
	}
	if client := one("client"); client != "" && err == nil {
		var ip netip.Addr
		if ip, err = parseIP("client", client); err == nil {
			q.asker.Client, q.mail.Client = ip, ip
		}
	}
	return q, err
}

// accepts reports whether a request names a type that it wants.
func accepts(r *http.Request, wanted string) bool {
	for _, field := range r.Header["Accept"] {
		for one := range strings.SplitSeq(field, ",") {
			if kind, _, _ := mime.ParseMediaType(one); kind == wanted {
				return true
			}
		}
	}
	return false
}

// checkTexts answers a text a line.
func (s *Server) checkTexts(w http.ResponseWriter, r *http.Request) {
	q, err := s.readTyped(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	body, ok := s.body(w, r, maxBatch)
	if !ok {
		return
	}
	texts := []string{string(body)}
	if !q.whole {
		if texts = linesOf(string(body)); len(texts) > MaxTexts {
			fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("more than %d lines", MaxTexts))
			return
		}
	}
	for i, text := range texts {
		texts[i] = text[:min(len(text), printout.MaxText)]
	}
	text, blocked, err := q.asker.Ask(nil, texts)
	tell(w, &q, text, blocked, err)
}

// linesOf reads the lines of a body, and one more than may be there at most.
func linesOf(body string) (texts []string) {
	for line := range strings.Lines(body) {
		if texts = append(texts, strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")); len(texts) > MaxTexts {
			break
		}
	}
	return texts
}

// checkMail explains the decision about one message. DNS is asked for it, so not everybody may.
func (s *Server) checkMail(w http.ResponseWriter, r *http.Request) {
	if !s.private(w, r) {
		return
	}
	q, err := s.readTyped(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if s.settings.Message.Resolver == nil {
		fail(w, http.StatusUnsupportedMediaType, "messages are not explained here")
		return
	}
	var ok bool
	if q.mail.Text, ok = s.body(w, r, s.settings.Message.Max); !ok {
		return
	}
	text, blocked, err := q.asker.AskMail(r.Context(), nil, s.settings.Message.Resolver, q.mail)
	if errors.Is(err, printout.ErrNoSender) {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	tell(w, &q, text, blocked, err)
}

// body reads a body of so many octets at most, or answers why it cannot.
func (s *Server) body(w http.ResponseWriter, r *http.Request, most int64) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body over %d octets", most))
	case err != nil:
		fail(w, http.StatusBadRequest, "the body ended too early")
	}
	return body, err == nil
}

func tell(w http.ResponseWriter, q *typed, text []byte, blocked bool, err error) {
	h := w.Header()
	h["Content-Type"] = typeText
	if q.asker.Form.JSON {
		h["Content-Type"] = typeStream
	}
	h[BlockedHeader] = []string{"0"}
	if blocked {
		h[BlockedHeader] = []string{"1"}
	}
	if err != nil {
		h.Set(FaultHeader, url.PathEscape(err.Error()))
	}
	w.Write(text) // it fails only if the client has gone
}
