package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/audit"
	"blockd/lists"
	"blockd/live"
	"blockd/receipt"
)

// DefaultGrant is how long a granted request lets mail in unless "for" says otherwise.
const DefaultGrant = "30d"

// RequestList is the answer to GET /v1/requests.
type RequestList struct {
	Requests []receipt.Request `json:"requests"` // the newest first, never null
	Damaged  int               `json:"damaged"`  // files that cannot be read
}

// RequestGrant is the answer to POST /v1/requests/grant.
type RequestGrant struct {
	receipt.Request
	Change ChangeResult `json:"change"` // the live entry that lets the mail in
}

// NewRequestList shows the requests of a state, of all states for "".
func NewRequestList(store *receipt.Store, state receipt.State) (RequestList, error) {
	l := RequestList{Requests: []receipt.Request{}}
	all, damaged, err := store.All()
	for _, q := range all {
		if q.From = ""; state == "" || q.State == state {
			l.Requests = append(l.Requests, q)
		}
	}
	l.Damaged = damaged
	return l, err
}

// ParseRequestState reads a state, "" is any.
func ParseRequestState(text string) (receipt.State, error) {
	switch s := receipt.State(text); s {
	case "", receipt.Open, receipt.Granted, receipt.Declined:
		return s, nil
	}
	return "", fmt.Errorf("state: want open, granted or declined, have %q", text)
}

func (s *Server) requests(w http.ResponseWriter, r *http.Request) {
	values, err := parseQuery(r.URL.RawQuery)
	state := receipt.State("")
	if err == nil {
		var v map[string]string
		if v, err = onlyOnce(values, []string{"state"}); err == nil {
			state, err = ParseRequestState(v["state"])
		}
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	l, err := NewRequestList(s.settings.Requests, state)
	if err != nil {
		s.requestFault(w, err)
		return
	}
	send(w, http.StatusOK, typeJSON, l)
}

// asked are the parameters of a decision, and the open request that it is about. If they are wrong, asked has answered.
func (s *Server) asked(w http.ResponseWriter, r *http.Request, known ...string) (v map[string]string, q receipt.Request, ok bool) {
	values, err := parseQuery(r.URL.RawQuery)
	if err == nil {
		v, err = onlyOnce(values, append(known, "ref", "author"))
	}
	if err == nil && v["ref"] == "" {
		err = errors.New("ref: want one")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return v, q, false
	}
	if q, err = s.settings.Requests.Get(v["ref"]); err == nil && q.State != receipt.Open {
		err = fmt.Errorf("%w: %s", receipt.ErrDecided, q.State)
	}
	if err != nil {
		s.requestFault(w, err)
		return v, q, false
	}
	return v, q, true
}

// grant lets in whom a request is about: the sender, or the client of a message without one. The entry comes first: if the
// daemon ends between the two, the request is still open, and to grant it once more changes nothing.
func (s *Server) grant(w http.ResponseWriter, r *http.Request) {
	v, q, ok := s.asked(w, r, "for")
	if !ok {
		return
	}
	now, by := time.Now(), authorOf(v["author"], s.callerOf(r))
	life, err := live.ParseLife(cmp.Or(v["for"], DefaultGrant))
	if err != nil {
		fail(w, http.StatusBadRequest, "for: "+err.Error())
		return
	}
	change := live.Change{Entry: cmp.Or(q.Sender, q.Client), Action: lists.Allow, Why: "request " + q.Ref, Author: by, Expires: now.Add(life)}
	if !s.record(w, audit.Line{By: by, Action: audit.RequestGrant, Subject: q.Ref, Detail: fmt.Sprintf("for %s, until %s", cmp.Or(q.Sender, q.Client), change.Expires.UTC().Format(time.RFC3339))}) {
		return
	}
	outcomes, ok := s.commit(w, r, []live.Change{change})
	if !ok {
		return
	}
	q, err = s.settings.Requests.Decide(q.Ref, receipt.Granted, by, change.Expires, now)
	if err != nil {
		s.requestFault(w, err)
		return
	}
	q.From = ""
	s.log.Info("request granted", slog.String("ref", q.Ref), slog.String("by", by), slog.String("sender", q.Sender), slog.Time("until", change.Expires))
	send(w, http.StatusOK, typeJSON, RequestGrant{q, NewChangeResult(outcomes[0])})
}

func (s *Server) decline(w http.ResponseWriter, r *http.Request) {
	v, q, ok := s.asked(w, r)
	if !ok {
		return
	}
	by := authorOf(v["author"], s.callerOf(r))
	if !s.record(w, audit.Line{By: by, Action: audit.RequestDecline, Subject: q.Ref, Detail: "for " + cmp.Or(q.Sender, q.Client)}) {
		return
	}
	q, err := s.settings.Requests.Decide(q.Ref, receipt.Declined, by, time.Time{}, time.Now())
	if err != nil {
		s.requestFault(w, err)
		return
	}
	q.From = ""
	s.log.Info("request declined", slog.String("ref", q.Ref), slog.String("by", by), slog.String("sender", q.Sender))
	send(w, http.StatusOK, typeJSON, q)
}

// requestFault answers with an error of package receipt.
func (s *Server) requestFault(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, receipt.ErrNoRequest):
		fail(w, http.StatusNotFound, err.Error())
	case errors.Is(err, receipt.ErrDecided):
		fail(w, http.StatusConflict, err.Error())
	default:
		s.log.Error("requests cannot be read or changed", slog.Any("error", err))
		fail(w, http.StatusInsufficientStorage, err.Error())
	}
}

func refParam() *huma.Param {
	p := parameter("ref", "of the request, as the refused person has it", "")
	p.Required = true
	return p
}

func describeRequests(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "requests", Summary: "Requests of refused people to be let in, the newest first",
		Description: "A note is as a stranger wrote it, without controls.",
		Parameters:  []*huma.Param{choice("state", "all of them if it is not said", "open", "granted", "declined")},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, RequestList{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusInsufficientStorage)
	return op
}

func describeGrant(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "grantRequest", Summary: "Let in whom a request is about",
		Description: "Adds a live entry that allows the sender, or the client where the message had no sender. The page of the refused person then says so.",
		Parameters:  []*huma.Param{refParam(), parameter("for", "how long, such as 30d, which it is if it is not said", ""), parameter("author", "who grants it", "")},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, RequestGrant{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusInsufficientStorage)
	return op
}

func describeDecline(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "declineRequest", Summary: "Decline a request",
		Description: "The page of the refused person then says so. Nobody is written to.",
		Parameters:  []*huma.Param{refParam(), parameter("author", "who declines it", "")},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, receipt.Request{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusInsufficientStorage)
	return op
}
