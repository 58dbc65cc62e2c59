package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/records/audit"
	"blockd/records/quarantine"
)

// Quarantine is what /v1/quarantine shows and changes.
type Quarantine struct {
	Folder  quarantine.Folder
	Fill    func() QuarantineFill
	Changed func()             // something was removed
	Deliver quarantine.Deliver // to the next server
}

// QuarantineFill is how much is in quarantine, and how much may be.
type QuarantineFill struct {
	Count      int   `json:"count"` // of messages
	MaxCount   int   `json:"max_count"`
	Octets     int64 `json:"octets"`
	MaxOctets  int64 `json:"max_octets"`
	NearlyFull bool  `json:"nearly_full"` // four fifths of either
}

// QuarantineList is the answer to GET.
type QuarantineList struct {
	Messages []quarantine.Message `json:"messages"`       // the newest first, never null
	Next     string               `json:"next,omitempty"` // the cursor of the next page; absent at the end
	QuarantineFill
}

// DefaultQuarantined is how many messages an answer has unless "limit" says otherwise.
const DefaultQuarantined = 100

// How long a release may take: the next server may look at the message for minutes.
const releaseTimeout = 10 * time.Minute

var quarantineParameters = [...]string{"sender", "recipient", "list", "since", "before", "cursor", "limit"}

// parseQuarantineQuery reads the parameters of GET. Its errors begin with the name of one.
func parseQuarantineQuery(values map[string][]string) (quarantine.Query, error) {
	v, err := onlyOnce(values, quarantineParameters[:])
	if err != nil {
		return quarantine.Query{}, err
	}
	q := quarantine.Query{Sender: v["sender"], Recipient: v["recipient"], List: v["list"], After: v["cursor"], Limit: DefaultQuarantined}
	for name, at := range map[string]*time.Time{"since": &q.Since, "before": &q.Before} {
		if text := v[name]; text != "" {
			if *at, err = time.Parse(time.RFC3339, text); err != nil {
				return q, fmt.Errorf("%s: want a time such as 2027-01-31T12:00:00Z, have %q", name, text)
			}
		}
	}
	if text := v["limit"]; text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > quarantine.MaxFound {
			return q, fmt.Errorf("limit: want 1 to %d, have %q", quarantine.MaxFound, text)
		}
	}
	return q, nil
}

// onlyOnce are the values of parameters that are known, each there once.
func onlyOnce(values map[string][]string, known []string) (map[string]string, error) {
	once := map[string]string{}
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("%s: no such parameter", name)
		case len(all) > 1:
			return nil, fmt.Errorf("%s: want it once", name)
		}
		once[name] = all[0]
	}
	return once, nil
}

// newQuarantineList is the answer for what was found.
func newQuarantineList(found quarantine.Found, fill QuarantineFill) QuarantineList {
	l := QuarantineList{Messages: found.Messages, QuarantineFill: fill}
	if found.More {
		l.Next = found.Messages[len(found.Messages)-1].ID
	}
	return l
}

// quarantined answers GET. A search reads the header of many files, so few run at a time.
func (s *Server) quarantined(w http.ResponseWriter, r *http.Request) {
	values, err := parseQuery(r.URL.RawQuery)
	q := quarantine.Query{}
	if err == nil {
		q, err = parseQuarantineQuery(values)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	select {
	case s.searches <- struct{}{}:
		defer func() { <-s.searches }()
	default:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "other searches are under way; try again in a second")
		return
	}
	found, err := s.settings.Quarantine.Folder.List(r.Context(), q)
	if err != nil {
		s.quarantineFault(w, err)
		return
	}
	send(w, http.StatusOK, typeJSON, newQuarantineList(found, s.settings.Quarantine.Fill()))
}

// oneMessage are the parameters of a request about one message. If they are wrong, oneMessage has answered.
func oneMessage(w http.ResponseWriter, r *http.Request, known ...string) (v map[string]string, ok bool) {
	values, err := parseQuery(r.URL.RawQuery)
	if err == nil {
		v, err = onlyOnce(values, append(known, "id"))
	}
	switch {
	case err != nil:
	case v["id"] == "":
		err = errors.New("id: want one")
	case zeroOrOne(v, "again") != nil:
		err = zeroOrOne(v, "again")
	default:
		return v, true
	}
	fail(w, http.StatusBadRequest, err.Error())
	return nil, false
}

// quarantinedMessage answers with one message: for people, or as it is for who accepts message/rfc822.
func (s *Server) quarantinedMessage(w http.ResponseWriter, r *http.Request) {
	v, ok := oneMessage(w, r)
	if !ok {
		return
	}
	id := v["id"]
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), typeMail) {
		file, err := s.settings.Quarantine.Folder.Open(id)
		if err != nil {
			s.quarantineFault(w, err)
			return
		}
		defer file.Close()
		w.Header().Set("Content-Type", typeMail)
		w.Header().Set("Content-Disposition", `attachment; filename="message.eml"`)
		io.Copy(w, file) // it fails only if the client has gone, or the disk: the length is not promised
		return
	}
	text, err := s.settings.Quarantine.Folder.Show(id)
	if err != nil {
		s.quarantineFault(w, err)
		return
	}
	send(w, http.StatusOK, typeJSON, text)
}

// release sends a message on. It goes on when the caller goes away: to stop in the midst could leave it unsure.
func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	v, ok := oneMessage(w, r, "again", "author")
	if !ok {
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(releaseTimeout + requestTimeout)) // where there is none, nothing ends the wait but the caller
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), releaseTimeout)
	defer cancel()
	by := s.callerOf(r).author(v["author"], r)
	detail := ""
	if v["again"] == "1" {
		detail = "again"
	}
	if !s.record(w, audit.Line{By: by, Action: audit.QuarantineRelease, Subject: v["id"], Detail: detail}) {
		return
	}
	done, err := s.settings.Quarantine.Folder.Release(ctx, v["id"], by, v["again"] == "1", s.settings.Quarantine.Deliver)
	s.settings.Quarantine.Changed()
	fields := []any{slog.String("by", by), slog.String("quarantine", done.ID), slog.String("sender", done.Sender), slog.Any("deliveries", done.Deliveries), slog.Bool("left", done.Left)}
	switch {
	case err == nil:
		s.log.Info("mail released", fields...)
		send(w, http.StatusOK, typeJSON, done)
	case done.ID == "": // it did not begin
		s.quarantineFault(w, err)
	default:
		s.log.Warn("mail not released", append(fields, slog.Any("error", err))...)
		fail(w, http.StatusBadGateway, err.Error())
	}
}

// removeQuarantined removes one message, or all that were set aside before a time.
func (s *Server) removeQuarantined(w http.ResponseWriter, r *http.Request) {
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		v, err = onlyOnce(values, []string{"id", "before", "author"})
	}
	if err == nil && (v["id"] == "") == (v["before"] == "") {
		err = errors.New("want id or before, and not both")
	}
	before := time.Time{}
	if err == nil && v["before"] != "" {
		if before, err = time.Parse(time.RFC3339, v["before"]); err != nil {
			err = fmt.Errorf("before: want a time such as 2027-01-31T12:00:00Z, have %q", v["before"])
		}
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(releaseTimeout))
	by, about := s.callerOf(r).author(v["author"], r), v["id"]
	if about == "" {
		about = "all before " + before.UTC().Format(time.RFC3339)
	}
	if !s.record(w, audit.Line{By: by, Action: audit.QuarantineRemove, Subject: about}) {
		return
	}
	var done quarantine.Removed
	if v["id"] != "" {
		done, err = s.settings.Quarantine.Folder.Remove(v["id"])
	} else {
		done, err = s.settings.Quarantine.Folder.Purge(r.Context(), before)
	}
	if done.Messages > 0 {
		s.settings.Quarantine.Changed()
		s.log.Info("mail removed from quarantine", slog.String("by", by), slog.String("quarantine", v["id"]),
			slog.Int("messages", done.Messages), slog.Int64("octets", done.Octets))
	}
	if err != nil {
		s.quarantineFault(w, err)
		return
	}
	send(w, http.StatusOK, typeJSON, done)
}

// quarantineFault answers with an error of package quarantine.
func (s *Server) quarantineFault(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, quarantine.ErrNotThere):
		fail(w, http.StatusNotFound, err.Error())
	case errors.Is(err, quarantine.ErrAmbiguous):
		fail(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, quarantine.ErrUnsure):
		fail(w, http.StatusConflict, err.Error()+"; look there, and if it is to be sent once more, say again=1")
	case errors.Is(err, quarantine.ErrBusy), errors.Is(err, quarantine.ErrForeign):
		fail(w, http.StatusConflict, err.Error())
	default:
		s.log.Error("quarantine cannot be read or changed", slog.Any("error", err))
		fail(w, http.StatusInsufficientStorage, err.Error())
	}
}

func idParam(about string) *huma.Param {
	p := parameter("id", about, "")
	p.Required = true
	return p
}

func describeQuarantined(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "quarantined", Summary: "The mail that was set aside, the newest first",
		Description: "Sender, From and Subject are as strangers wrote them, decoded, with any character.",
		Parameters: []*huma.Param{
			parameter("sender", "a part of the envelope sender or of From, in any case", ""),
			parameter("recipient", "a part of a recipient", ""),
			parameter("list", "a part of the name of a list", ""),
			moment("since", "set aside then or later"),
			moment("before", "set aside before"),
			parameter("cursor", "`next` of the page before", ""),
			number("limit", "how many messages at most", 1, quarantine.MaxFound, DefaultQuarantined),
		},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, QuarantineList{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusInsufficientStorage)
	return op
}

func describeQuarantinedMessage(d *document) *huma.Operation {
	content := d.content(typeJSON, quarantine.Content{})
	content[typeMail] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	op := &huma.Operation{OperationID: "quarantinedMessage", Summary: "What a message in quarantine says",
		Description: "It needs a token of scope write: who may read other people's mail may release it too. With Accept: message/rfc822 it is the file as it is.",
		Parameters:  []*huma.Param{idParam("of the message, or a beginning that no other has")},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: content}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusInsufficientStorage)
	return op
}

func describeRelease(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "release", Summary: "Send a message in quarantine on to its recipients",
		Description: "The next server gets it from its own sender. What that takes is removed here; for recipients that it refuses the message stays. " +
			"A release that was cut off when the next server may have had the message is not repeated by itself: 409.",
		Parameters: []*huma.Param{idParam("of the message, or a beginning that no other has"),
			switched("again", "send it once more although the next server may have it"), parameter("author", "who releases it", "")},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, quarantine.Released{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusBadGateway, http.StatusInsufficientStorage)
	return op
}

func describeRemoveQuarantined(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "removeQuarantined", Summary: "Remove mail from quarantine, for good",
		Parameters: []*huma.Param{parameter("id", "one message", ""), moment("before", "in its place: all that were set aside before this time"),
			parameter("author", "who removes it", "")},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, quarantine.Removed{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusInsufficientStorage)
	return op
}
