package httpapi

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/doors/forget"
	"blockd/mail/addr"
	"blockd/records/audit"
	"blockd/records/correspondents"
)

// MostLearned is how many messages one POST /v1/correspondents has at most.
const MostLearned = 10_000

// The bounds of the bodies, in octets.
const (
	maxLearned = 8 << 20
	maxForget  = 4 << 10
)

// SentMessage is a message of a user of this server to one recipient.
type SentMessage struct {
	Sender    string    `json:"sender" doc:"of the envelope"`
	Recipient string    `json:"recipient"`
	Time      time.Time `json:"time" doc:"its day counts"`
}

// LearnQuestion is the body of POST /v1/correspondents.
type LearnQuestion struct {
	Sent   []SentMessage `json:"sent" doc:"at most 10,000, the oldest first"`
	Author string        `json:"author,omitempty" doc:"who asks"`
}

// Learned is the answer.
type Learned struct {
	Recipients int `json:"recipients"` // of the messages, that are correspondents
	Known      int `json:"known"`      // correspondents, in all
}

// learnFrom notes messages in a set.
func learnFrom(set *correspondents.Set, all []SentMessage) (l Learned) {
	for _, m := range all {
		sender, err := addr.Parse(m.Sender)
		recipient, failed := addr.Parse(m.Recipient)
		if err == nil && failed == nil && set.Learn(sender, recipient, m.Time) {
			l.Recipients++
		}
	}
	l.Known = set.Len()
	return l
}

// body reads a JSON body. If it is wrong, body has answered.
func body(w http.ResponseWriter, r *http.Request, max int64, v any) bool {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, max))
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body over %d octets", max))
		return false
	}
	if err := decodeWith(text, v, true); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return false
	}
	return true
}

func (s *Server) learn(w http.ResponseWriter, r *http.Request) {
	var q LearnQuestion
	if !body(w, r, maxLearned, &q) {
		return
	}
	if len(q.Sent) > MostLearned {
		fail(w, http.StatusBadRequest, fmt.Sprintf("sent: %d messages, want %d at most", len(q.Sent), MostLearned))
		return
	}
	if !s.record(w, learnLine(s.callerOf(r).author(q.Author, r), len(q.Sent))) {
		return
	}
	l := learnFrom(s.settings.Person.Correspondents, q.Sent)
	if err := s.settings.Person.Correspondents.Save(); err != nil {
		s.log.Error("correspondents not saved", slog.Any("error", err))
		fail(w, http.StatusInternalServerError, "learned, and not saved: "+err.Error())
		return
	}
	send(w, http.StatusOK, typeJSON, l)
}

// learnLine is the line of the journal about messages that are learned from.
func learnLine(by string, messages int) audit.Line {
	return audit.Line{By: by, Action: audit.CorrespondentsAdd, Subject: fmt.Sprintf("%d messages of users", messages)}
}

// ForgetQuestion is the body of POST /v1/forget.
type ForgetQuestion struct {
	Address    string `json:"address"`
	Entries    bool   `json:"entries,omitempty" doc:"remove live entries for the address, too, that others have made"`
	Quarantine bool   `json:"quarantine,omitempty" doc:"remove messages from it, and those to it alone, from quarantine too"`
	Author     string `json:"author,omitempty" doc:"who asks"`
	Why        string `json:"why,omitempty" doc:"a line for the journal, which keeps it; do not name the person"`
}

func (s *Server) forget(w http.ResponseWriter, r *http.Request) {
	var q ForgetQuestion
	if !body(w, r, maxForget, &q) {
		return
	}
	a, err := ParsePerson(q.Address)
	if err != nil {
		fail(w, http.StatusBadRequest, "address: "+err.Error())
		return
	}
	author := s.callerOf(r).author(q.Author, r)
	if !s.record(w, forgetLine(s.settings.Person, a, author, q.Why)) {
		return
	}
	f, err := s.settings.Person.Forget(r.Context(), a, forget.Wish{Entries: q.Entries, Quarantine: q.Quarantine, Author: author})
	if err != nil {
		s.log.Error("a person is not forgotten everywhere", slog.Any("error", err)) // without the address
		fail(w, http.StatusInternalServerError, "not forgotten everywhere; ask again: "+err.Error())
		return
	}
	s.log.Warn("a person was forgotten", slog.Int("decisions", f.Decisions), slog.Int("requests", f.Requests))
	send(w, http.StatusOK, typeJSON, f)
}

// ParsePerson reads the address of a person.
func ParsePerson(text string) (addr.Addr, error) {
	a, err := addr.Parse(text)
	if err == nil && a.Domain() == "" {
		err = errors.New("want an address with a domain")
	}
	return a, err
}

// forgetLine is the line of the journal about a person that is forgotten: by a keyed hash, since the journal forgets
// nobody.
func forgetLine(p *forget.Places, a addr.Addr, by, why string) audit.Line {
	return audit.Line{By: by, Action: audit.PersonForget, Subject: "person " + p.Correspondents.Pseudonym(a), Why: why}
}

func describeLearn(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "learnCorrespondents", Summary: "Learn to whom users of this server have written",
		Description: "Kept are keyed hashes alone. Recipients at the sender's domain and at the server's own are none.",
		RequestBody: &huma.RequestBody{Required: true, Content: d.content(typeJSON, LearnQuestion{})},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, Learned{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusInternalServerError, http.StatusInsufficientStorage)
	return op
}

func describeForget(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "forget", Summary: "Erase what is kept about one person",
		Description: "Correspondents, senders accepted lately, decisions of the history, requests to be let in, live entries whose owner it is, counts of hits, notes for the next letter. What stays, and why, is in `remains`.",
		RequestBody: &huma.RequestBody{Required: true, Content: d.content(typeJSON, ForgetQuestion{})},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, forget.Forgotten{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusInternalServerError, http.StatusInsufficientStorage)
	return op
}
