package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/records/audit"
)

// LiveShared is the answer to GET /v1/live: how the entries are that machines share.
type LiveShared struct {
	Store    string     `json:"store" doc:"the database, without a password"`
	Name     string     `json:"name" doc:"who shares"`
	Up       bool       `json:"up" doc:"the database answers"`
	Fault    string     `json:"fault,omitempty" doc:"why not"`
	Since    *time.Time `json:"since,omitempty" doc:"when it began not to"`
	Seen     *time.Time `json:"seen" doc:"when it has answered last, by its clock; null: never"`
	Revision uint64     `json:"revision" doc:"of the newest change that acts here"`
	Entries  int64      `json:"entries" doc:"that are shared"`
	Sum      string     `json:"sum" doc:"of these: the same on machines that have the same"`
	Offset   float64    `json:"clock_offset" doc:"how many seconds the database's clock is before this machine's"`
	Pending  int        `json:"pending" doc:"changes made on this machine alone that wait for the database"`
	Refused  int        `json:"refused" doc:"changes made on this machine alone that the database refuses for good, at most the last 100"`
	Differs  int        `json:"differs" doc:"how often in turn the entries have differed from the database's"`
	LostAll  int        `json:"lost_total" doc:"how many changes the database had acknowledged, and has lost"`
	Lost     []LiveLost `json:"lost" doc:"of these, the first 1,000"`
}

// mostLost is how many lost changes an answer shows.
const mostLost = 1000

// LiveLost is a change that the database has lost.
type LiveLost struct {
	Change string     `json:"change" enum:"add,remove,revoke"`
	Entry  *LiveEntry `json:"entry,omitempty" doc:"that was added or removed"`
	Token  string     `json:"token,omitempty" doc:"the name of a token of the fleet that was revoked, and is valid again"`
	Found  time.Time  `json:"found" doc:"when it was noticed"`
}

// LiveOffered is the answer to an offer, and to a dismissal.
type LiveOffered struct {
	Changes int `json:"changes"`
	Left    int `json:"left" doc:"how many lost changes are still to be offered: ask again"`
}

// offerTime bounds one request that offers.
const offerTime = 10 * time.Second

// LiveWho is the body of an offer or a dismissal.
type LiveWho struct {
	Author string `json:"author,omitempty" doc:"who asks"`
	Why    string `json:"why,omitempty" doc:"a line, for the audit journal"`
}

func (s *Server) liveShared() method {
	return operate(s, operation{method: http.MethodGet, id: "liveShared", summary: "How the live entries are that machines share", right: privately, tagged: true,
		status: http.StatusInternalServerError, lost: "what the store of live entries has lost cannot be read",
	}, func(call, struct{}) (l LiveShared, err error) {
		now := s.settings.Shared.Status()
		l = LiveShared{Store: now.Store, Name: now.Name, Up: now.Up, Fault: now.Fault, Revision: now.Revision, Entries: now.Entries, Sum: now.Sum,
			Offset: now.Offset.Seconds(), Pending: now.Pending, Refused: now.Refused, LostAll: now.Lost, Differs: now.Differs, Lost: []LiveLost{}}
		if !now.Up && now.Fault != "" {
			l.Since = &now.Since
		}
		if !now.Seen.IsZero() {
			l.Seen = &now.Seen
		}
		all, err := s.settings.Shared.Lost(mostLost)
		for _, lost := range all {
			row := lost.Row
			if row.Scope == shared.ScopeToken {
				l.Lost = append(l.Lost, LiveLost{Change: "revoke", Token: row.Entry, Found: lost.At})
				continue
			}
			change := LiveLost{Change: "add", Found: lost.At}
			if row.Gone != 0 {
				change.Change, row.Gone = "remove", 0
			}
			if e, err := row.Parse(); err == nil {
				change.Entry = NewLiveEntry(e)
				l.Lost = append(l.Lost, change)
			}
		}
		return l, err
	})
}

// mostWait bounds how long a question for changes is held.
const mostWait = 30 * time.Second

// liveChanges says what has changed since a revision, or waits until something has.
func (s *Server) liveChanges(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	since, err := strconv.ParseUint(v.Get("since"), 10, 64)
	if err != nil {
		fail(w, http.StatusBadRequest, "since: want the highest revision that you have; 0 = none")
		return
	}
	wait := uint64(0)
	if text := v.Get("wait"); text != "" {
		if wait, err = strconv.ParseUint(text, 10, 8); err != nil || wait > uint64(mostWait.Seconds()) {
			fail(w, http.StatusBadRequest, fmt.Sprintf("wait: want 0 to %d seconds", int(mostWait.Seconds())))
			return
		}
	}
	limit := time.Duration(wait) * time.Second
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit + requestTimeout))
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	c, err := s.settings.Shared.Since(ctx, since)
	switch {
	case errors.Is(err, shared.ErrAsk):
		fail(w, http.StatusServiceUnavailable, err.Error())
	case s.gone(r): // while it waited
		unauthorized(w, r, "this token was revoked")
	default:
		send(w, http.StatusOK, typeJSON, c)
	}
}

func describeLiveChanges(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "liveChanges", Summary: "What has changed in the shared live entries since a revision",
		Description: "For nodes that ask this one in place of their database (live.relays).",
		Parameters: []*huma.Param{
			{Name: "since", In: "query", Required: true, Description: "the highest revision that the caller has; 0 = none", Schema: &huma.Schema{Type: huma.TypeInteger}},
			{Name: "wait", In: "query", Description: "seconds, 30 at the most, for which the answer waits while nothing has changed", Schema: &huma.Schema{Type: huma.TypeInteger}}},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, shared.Changes{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusServiceUnavailable)
	return op
}

// offerLost makes the changes that the database has lost once more.
func (s *Server) offerLost() method {
	return operate(s, operation{method: http.MethodPost, id: "offerLost", summary: "Make the changes that the database has lost once more",
		about: "What has changed since then is left as it is. An answer comes after ten seconds at the latest: while it has left, ask again.",
		right: writing, body: maxPause, optional: true, faults: []faultKind{{live.ErrAway, http.StatusServiceUnavailable}}, lost: "lost changes of live entries are not offered again",
	}, func(c call, q LiveWho) (a LiveOffered, err error) {
		by := c.by(q.Author)
		if err := c.record(audit.Line{By: by, Action: audit.LiveOffer, Subject: fmt.Sprintf("%d lost changes", s.settings.Shared.Status().Lost), Why: q.Why}); err != nil {
			return a, err
		}
		ctx, cancel := context.WithTimeout(c.Context(), offerTime)
		defer cancel()
		made, err := s.settings.Shared.Offer(ctx, by)
		if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = nil // the rest is for the next question
		}
		return LiveOffered{made, s.settings.Shared.Status().Lost}, err
	})
}

// dismissLost forgets what the database has lost.
func (s *Server) dismissLost() method {
	return operate(s, operation{method: http.MethodPost, id: "dismissLost", summary: "Forget the changes that the database has lost", right: writing, body: maxPause, optional: true}, func(c call, q LiveWho) (a LiveOffered, err error) {
		if err := c.record(audit.Line{By: c.by(q.Author), Action: audit.LiveDismiss, Subject: fmt.Sprintf("%d lost changes", s.settings.Shared.Status().Lost), Why: q.Why}); err != nil {
			return a, err
		}
		count, err := s.settings.Shared.Dismiss()
		return LiveOffered{count, s.settings.Shared.Status().Lost}, err
	})
}
