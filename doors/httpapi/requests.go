package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/doors/receipt"
	"blockd/index/live"
	"blockd/lists"
	"blockd/records/audit"
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

// newRequestList shows the requests of a state, of all states for "".
func newRequestList(store *receipt.Store, state receipt.State) (RequestList, error) {
	l := RequestList{Requests: []receipt.Request{}}
	all, damaged, err := store.All()
	for _, q := range all {
		if state == "" || q.State == state {
			l.Requests = append(l.Requests, q.Shown())
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
	l, err := newRequestList(s.settings.Requests, state)
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
	v, q, ok := s.asked(w, r, "for", "proof")
	if !ok {
		return
	}
	now, by := time.Now(), s.callerOf(r).author(v["author"], r)
	life, err := live.ParseLife(cmp.Or(v["for"], DefaultGrant))
	if err != nil {
		fail(w, http.StatusBadRequest, "for: "+err.Error())
		return
	}
	proof := receipt.Proof(v["proof"])
	switch proof {
	case receipt.NoProof:
	case "":
		proof = s.proofOf(r.Context(), q)
	default:
		fail(w, http.StatusBadRequest, fmt.Sprintf("proof: want none or nothing, have %q", proof))
		return
	}
	if proof == receipt.Unknown {
		w.Header().Set("Retry-After", "60")
		fail(w, http.StatusServiceUnavailable, "DNS does not tell whether SPF passes "+q.Client+" for "+q.Sender+`: try again in a minute, or say proof=none (blockd requests grant --no-proof) to let in whoever writes this address`)
		return
	}
	change := live.Change{Entry: cmp.Or(q.Sender, q.Client), Action: lists.Allow, Why: "request " + q.Ref, Author: by, Expires: now.Add(life), NeedsProof: proof == receipt.SPF}
	detail := fmt.Sprintf("for %s, until %s", change.Entry, change.Expires.UTC().Format(time.RFC3339))
	if change.NeedsProof {
		detail += ", with SPF or DKIM"
	}
	if !s.record(w, audit.Line{By: by, Action: audit.RequestGrant, Subject: q.Ref, Detail: detail}) {
		return
	}
	if proof != q.Proof && v["proof"] == "" {
		if err := s.settings.Requests.NoteProof(q.Ref, proof); err != nil {
			s.requestFault(w, err)
			return
		}
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
	s.log.Info("request granted", slog.String("ref", q.Ref), slog.String("by", by), slog.String("sender", q.Sender), slog.Time("until", change.Expires))
	send(w, http.StatusOK, typeJSON, RequestGrant{q.Shown(), newChangeResult(outcomes[0])})
}

// proofOf is what showed that the mail of a request was its sender's. A request that came before that was asked, or whose DNS
// gave no answer then, is asked about now.
func (s *Server) proofOf(ctx context.Context, q receipt.Request) receipt.Proof {
	if q.Sender == "" || q.Proof == receipt.SPF || q.Proof == receipt.NoProof || s.settings.Proves == nil {
		return q.Proof
	}
	return s.settings.Proves(ctx, q)
}

func (s *Server) decline(w http.ResponseWriter, r *http.Request) {
	v, q, ok := s.asked(w, r)
	if !ok {
		return
	}
	by := s.callerOf(r).author(v["author"], r)
	if !s.record(w, audit.Line{By: by, Action: audit.RequestDecline, Subject: q.Ref, Detail: "for " + cmp.Or(q.Sender, q.Client)}) {
		return
	}
	q, err := s.settings.Requests.Decide(q.Ref, receipt.Declined, by, time.Time{}, time.Now())
	if err != nil {
		s.requestFault(w, err)
		return
	}
	s.log.Info("request declined", slog.String("ref", q.Ref), slog.String("by", by), slog.String("sender", q.Sender))
	send(w, http.StatusOK, typeJSON, q.Shown())
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
		Description: "Adds a live entry that allows the sender, or the client where the message had no sender. Where SPF passed the client that was refused, the entry counts only with SPF or DKIM. The page of the refused person then says so.",
		Parameters:  []*huma.Param{refParam(), parameter("for", "how long, such as 30d, which it is if it is not said", ""), choice("proof", "SPF or DKIM, if SPF passed the client that was refused", "none"), parameter("author", "who grants it", "")},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, RequestGrant{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable, http.StatusInsufficientStorage)
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
