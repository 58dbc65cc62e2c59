package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

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

func (s *Server) learn() method {
	return operate(s, operation{method: http.MethodPost, id: "learnCorrespondents", summary: "Learn to whom users of this server have written",
		about: "Kept are keyed hashes alone. Recipients at the sender's domain and at the server's own are none.",
		right: writing, body: maxLearned, status: http.StatusInternalServerError, lost: "correspondents not saved", also: []int{http.StatusInsufficientStorage},
	}, func(c call, q LearnQuestion) (l Learned, err error) {
		if len(q.Sent) > MostLearned {
			return l, badf("sent: %d messages, want %d at most", len(q.Sent), MostLearned)
		}
		if len(q.Sent) == 0 { // a question whether somebody is there
			return Learned{Known: s.settings.Person.Correspondents.Len()}, nil
		}
		if err := c.record(audit.Line{By: c.by(q.Author), Action: audit.CorrespondentsAdd, Subject: fmt.Sprintf("%d messages of users", len(q.Sent))}); err != nil {
			return l, err
		}
		l = learnFrom(s.settings.Person.Correspondents, q.Sent)
		if err := s.settings.Person.Correspondents.Save(); err != nil {
			return l, fmt.Errorf("learned, and not saved: %w", err)
		}
		return l, nil
	})
}

// ForgetQuestion is the body of POST /v1/forget.
type ForgetQuestion struct {
	Address    string `json:"address"`
	Entries    bool   `json:"entries,omitempty" doc:"remove live entries for the address, too, that others have made"`
	Quarantine bool   `json:"quarantine,omitempty" doc:"remove messages from it, and those to it alone, from quarantine too"`
	Author     string `json:"author,omitempty" doc:"who asks"`
	Why        string `json:"why,omitempty" doc:"a line for the journal, which keeps it; do not name the person"`
}

func (s *Server) forget() method {
	return operate(s, operation{method: http.MethodPost, id: "forget", summary: "Erase what is kept about one person",
		about: "Correspondents, senders accepted lately, decisions of the history, requests to be let in, live entries whose owner it is, counts of hits, notes for the next letter. What stays, and why, is in `remains`.",
		right: writing, body: maxForget, status: http.StatusInternalServerError, lost: "a person is not forgotten everywhere", also: []int{http.StatusInsufficientStorage},
	}, func(c call, q ForgetQuestion) (f forget.Forgotten, err error) {
		a, err := ParsePerson(q.Address)
		if err != nil {
			return f, badf("address: %v", err)
		}
		p, author := s.settings.Person, c.by(q.Author)
		// The journal, which forgets nobody, has a keyed hash.
		if err := c.record(audit.Line{By: author, Action: audit.PersonForget, Subject: "person " + p.Correspondents.Pseudonym(a), Why: q.Why}); err != nil {
			return f, err
		}
		if f, err = p.Forget(c.Context(), a, forget.Wish{Entries: q.Entries, Quarantine: q.Quarantine, Author: author}); err != nil {
			return f, fmt.Errorf("not forgotten everywhere; ask again: %w", err)
		}
		s.log.Warn("a person was forgotten", slog.Int("decisions", f.Decisions), slog.Int("requests", f.Requests))
		return f, nil
	})
}

// ParsePerson reads the address of a person.
func ParsePerson(text string) (addr.Addr, error) {
	a, err := addr.Parse(text)
	if err == nil && a.Domain() == "" {
		err = errors.New("want an address with a domain")
	}
	return a, err
}
