package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/index/live"
	"blockd/mail/addr"
	"blockd/policy/junk"
	"blockd/records/audit"
	"blockd/records/history"
)

// The results of a message in Junk, besides those of a change.
const (
	JunkAsk     = "ask"     // nothing is blocked until it is said once more, with force
	JunkKept    = "kept"    // the user has an entry of his own, which stays
	JunkRefused = "refused" // nothing can be blocked
)

// JunkAnswer is the answer to POST /v1/owners/{owner}/junk.
type JunkAnswer struct {
	Result string     `json:"result" enum:"added,replaced,unchanged,removed,absent,ask,kept,refused"`
	Sender string     `json:"sender,omitempty" doc:"of the message, by its Return-Path; absent if it has none"`
	Reason string     `json:"reason,omitempty" doc:"for people: why nothing was changed"`
	Entry  *LiveEntry `json:"entry"` // in force now; null: none
	Was    *LiveEntry `json:"was"`
}

// ComplaintAnswer is the answer to POST /v1/complaints.
type ComplaintAnswer struct {
	Result string   `json:"result" enum:"taken,withdrawn,refused,forged"`
	Sender string   `json:"sender,omitempty"`
	Users  []string `json:"users" doc:"for whom it counts; never null"`
	Reason string   `json:"reason,omitempty" doc:"for people: why it counts for nobody"`
}

// The results of complaints.
const (
	ComplaintTaken     = "taken"
	ComplaintWithdrawn = "withdrawn"
	ComplaintRefused   = "refused" // it is none, or lacks what is needed
	ComplaintForged    = "forged"  // the history does not bear it out
)

// maxMoved bounds a message in Junk, of which the header is read: what mail servers take at most.
const maxMoved = 256 << 20

// newJunkAnswer says what has become of a message. Errors that are no answer it returns.
func newJunkAnswer(m junk.Message, o live.Outcome, err error) (JunkAnswer, error) {
	a := JunkAnswer{Sender: m.Key.Text}
	switch {
	case err == nil:
		c := newChangeResult(o)
		a.Result, a.Entry, a.Was = c.Result, c.Entry, c.Was
		return a, nil
	case errors.Is(err, junk.ErrAsk):
		a.Result = JunkAsk
	case errors.Is(err, junk.ErrOwn):
		a.Result = JunkKept
	case errors.Is(err, junk.ErrRefused):
		a.Result = JunkRefused
	default:
		return a, err
	}
	a.Reason = err.Error()
	return a, nil
}

// mailBody is the beginning of a body that is mail; the rest of it is read and dropped, so that the caller gets its answer. If it is none, mailBody has
// answered.
func mailBody(w http.ResponseWriter, r *http.Request, max int64) (text []byte, ok bool) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != typeMail {
		w.Header().Set("Accept-Post", typeMail)
		fail(w, http.StatusUnsupportedMediaType, "want Content-Type "+typeMail)
		return nil, false
	}
	body := http.MaxBytesReader(w, r.Body, maxMoved)
	text, err := io.ReadAll(io.LimitReader(body, max))
	if err == nil {
		_, err = io.Copy(io.Discard, body)
	}
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body over %d octets", maxMoved))
		return nil, false
	case err != nil:
		fail(w, http.StatusBadRequest, "the body ended too early")
		return nil, false
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text)) // for a successor
	return text, true
}

// moved answers POST /v1/owners/{owner}/junk.
func (s *Server) moved(w http.ResponseWriter, r *http.Request) {
	owner, ok := s.ownerOf(w, r, r.PathValue("owner"))
	if !ok {
		return
	}
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		v, err = onlyOnce(values, []string{"undo", "force", "for", "author"})
	}
	if err == nil {
		err = zeroOrOne(v, "undo", "force")
	}
	q := junk.Question{User: owner, Undo: v["undo"] == "1", Force: v["force"] == "1", Author: v["author"]}
	c := s.callerOf(r)
	if q.Author == "" && c.name == "" { // the mail server, for its user
		q.Author = owner.Text
	}
	q.Author = c.author(q.Author, r)
	if err == nil && owner.Kind != addr.Address {
		err = errors.New("owner: want the mailbox of the user")
	}
	if err == nil && v["for"] != "" {
		if q.Life, err = live.ParseLife(v["for"]); err != nil {
			err = fmt.Errorf("for: %w", err)
		}
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	text, ok := mailBody(w, r, junk.MaxHeader)
	if !ok {
		return
	}
	desk, now := s.settings.Junk, time.Now()
	m, said := junk.Read(bytes.NewReader(text))
	var outcome live.Outcome
	if said == nil && !q.Undo && !s.ofDomains.admits(w, s.callerOf(r), owner, 1, s.settings.Entries.Owned()) {
		return
	}
	if said == nil {
		outcomes, ok := s.commitBy(w, r, []live.Change{{Author: q.Author}}, func() ([]live.Outcome, error) {
			o, err := desk.Move(m, q, now)
			if _, is := newJunkAnswer(m, o, err); is == nil && err != nil {
				said, err = err, nil // an answer, and no fault
			}
			return []live.Outcome{o}, err
		})
		if !ok {
			return
		}
		outcome = outcomes[0]
	}
	if said == nil || q.Undo && errors.Is(said, junk.ErrOwn) { // what was said for everybody is taken back also where an entry stays
		if err := desk.Note(m, q, now); err != nil {
			s.log.Error("proposals cannot be read or changed", slog.Any("error", err))
		}
	}
	answer, _ := newJunkAnswer(m, outcome, said)
	s.junked.WithLabelValues(answer.Result).Inc()
	send(w, http.StatusOK, typeJSON, answer)
}

// takeComplaint counts what a complaint says for the users who are found in the history since a time: for the mailboxes that mailbox says their
// addresses belong to. It counts from the time of the message, so that one that is handed in again says nothing new. A complaint takes back complaints alone: its sender may
// have written it. record writes a line before.
func takeComplaint(ctx context.Context, box *junk.Box, text io.Reader, mailbox func(addr.Addr) addr.Addr, search junk.Search, since time.Time, by string, record func(audit.Line) error) (a ComplaintAnswer, err error) {
	a.Users = []string{}
	report, err := junk.ReadReport(text)
	a.Sender = report.Sender.Key.Text
	var found []junk.Complainer
	if err == nil {
		found, err = report.Prove(ctx, search, since)
	}
	switch {
	case errors.Is(err, junk.ErrForged):
		a.Result, a.Reason = ComplaintForged, err.Error()
		return a, nil
	case errors.Is(err, junk.ErrRefused):
		a.Result, a.Reason = ComplaintRefused, err.Error()
		return a, nil
	case err != nil:
		return a, err
	}
	a.Result = ComplaintTaken
	if report.Takes() {
		a.Result = ComplaintWithdrawn
	}
	for _, f := range found {
		key, ok := mailbox(f.User).Key()
		if !ok || slices.Contains(a.Users, key.Text) {
			continue
		}
		a.Users = append(a.Users, key.Text)
		said, kind, err := box.Said(a.Sender, key.Text)
		if err != nil {
			return a, err
		}
		if report.Takes() && kind != junk.Complaint || !report.Takes() && !f.At.Truncate(time.Second).After(said) {
			continue
		}
		if err := record(audit.Line{By: by, Action: audit.ComplaintTake, Subject: a.Sender, Detail: a.Result + " for " + key.Text}); err != nil {
			return a, err
		}
		if report.Takes() {
			err = box.Unsay(a.Sender, key.Text, time.Now())
		} else {
			err = box.Say(a.Sender, key.Text, junk.Complaint, f.At)
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

// complaintTime is how long the history is searched for one complaint. An answer has to be written within requestTimeout.
const complaintTime = 15 * time.Second

// complain answers POST /v1/complaints.
func (s *Server) complain(w http.ResponseWriter, r *http.Request) {
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		v, err = onlyOnce(values, []string{"author"})
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	text, ok := mailBody(w, r, junk.MaxComplaint)
	if !ok {
		return
	}
	desk := s.settings.Junk
	ctx, cancel := context.WithTimeout(r.Context(), complaintTime)
	defer cancel()
	a, err := takeComplaint(ctx, desk.Box, bytes.NewReader(text), s.settings.Mailbox, s.settings.History.Search, time.Now().Add(-desk.Life), s.callerOf(r).author(v["author"], r), func(l audit.Line) error {
		if s.settings.Audit == nil {
			return nil
		}
		return s.settings.Audit.Log.Add(l)
	})
	switch {
	case errors.Is(err, history.ErrBusy):
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	case errors.Is(err, context.DeadlineExceeded):
		w.Header().Set("Retry-After", "60")
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("the history was searched for %v, and not to its end: nothing is counted; hand it in again when the machine is less busy", complaintTime))
		return
	case err != nil:
		operation{faults: proposalFaults, lost: proposalsLost}.fail(call{r, w, s}, err)
		return
	}
	s.complaints.WithLabelValues(a.Result).Inc()
	send(w, http.StatusOK, typeJSON, a)
}

// newJunkMetrics counts messages in Junk and complaints, each result from the start.
func newJunkMetrics(reg prometheus.Registerer) (moved, complaints *prometheus.CounterVec) {
	moved = promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "blockd_junk_messages_total",
		Help: "Messages that users have moved to Junk or back, by result: added, replaced, unchanged, removed, absent, ask (a guard wants to hear it once more), kept (an entry of the user's own), refused."}, []string{"result"})
	for _, result := range []string{"added", "replaced", "unchanged", "removed", "absent", JunkAsk, JunkKept, JunkRefused} {
		moved.WithLabelValues(result)
	}
	complaints = promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "blockd_junk_complaints_total",
		Help: "Complaints (RFC 5965), by result: taken, withdrawn, refused (none, or without what is needed), forged (the history does not bear it out)."}, []string{"result"})
	for _, result := range []string{ComplaintTaken, ComplaintWithdrawn, ComplaintRefused, ComplaintForged} {
		complaints.WithLabelValues(result)
	}
	return moved, complaints
}

func mailRequest() *huma.RequestBody {
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{typeMail: {Schema: &huma.Schema{Type: huma.TypeString}}}}
}

func describeMoved(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "moveToJunk", Summary: "A user has moved a message to Junk, or back",
		Description: "Blocks the sender by the message's Return-Path, for this owner alone and for a time. Only the header is read. The result ask means that a guard " +
			"wants to hear it once more, with force=1: the sender is of the user's own domain, of a protected one, or users here write to it.",
		Parameters: []*huma.Param{ownerParam(), switched("undo", "it was moved back: the entry goes"), switched("force", "the user was asked, and means it"),
			parameter("for", "how long, such as 30d; junk.for if it is not said", ""), parameter("author", "who has moved it", "")},
		RequestBody: mailRequest(),
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, JunkAnswer{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusInsufficientStorage)
	return op
}

func describeComplain(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "complain", Summary: "Take a complaint in the Abuse Reporting Format (RFC 5965)",
		Description: "It counts for those users to whom the history has an accepted message from that sender and that client, as a part of a proposal. It blocks nothing.",
		Parameters:  []*huma.Param{parameter("author", "who hands it in", "")},
		RequestBody: mailRequest(),
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ComplaintAnswer{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusServiceUnavailable, http.StatusInsufficientStorage)
	return op
}
