package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

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

// requestFaults are those of package receipt.
var requestFaults = []faultKind{{receipt.ErrNoRequest, http.StatusNotFound}, {receipt.ErrDecided, http.StatusConflict}}

const requestsLost = "requests cannot be read or changed"

func (s *Server) listRequests() method {
	return operate(s, operation{method: http.MethodGet, id: "requests", summary: "Requests of refused people to be let in, the newest first",
		about: "A note is as a stranger wrote it, without controls.", right: privately, large: true, lost: requestsLost,
	}, func(_ call, q struct {
		State string `query:"state" doc:"all of them if it is not said" enum:"open,granted,declined"`
	}) (RequestList, error) {
		return newRequestList(s.settings.Requests, receipt.State(q.State))
	})
}

// openRequest is a request that waits for a person.
func (s *Server) openRequest(ref string) (q receipt.Request, err error) {
	if q, err = s.settings.Requests.Get(ref); err == nil && q.State != receipt.Open {
		err = fmt.Errorf("%w: %s", receipt.ErrDecided, q.State)
	}
	return q, err
}

// grantRequest lets in whom a request is about: the sender, or the client of a message without one. The entry comes first: if the
// daemon ends between the two, the request is still open, and to grant it once more changes nothing.
func (s *Server) grantRequest() method {
	return operate(s, operation{method: http.MethodPost, id: "grantRequest", summary: "Let in whom a request is about",
		about: "Adds a live entry that allows the sender, or the client where the message had no sender. Where SPF passed the client that was refused, the entry counts only with SPF or DKIM. The page of the refused person then says so.",
		right: writing, faults: requestFaults, lost: requestsLost, also: []int{http.StatusServiceUnavailable},
	}, func(c call, asked struct {
		Ref    string `query:"ref" required:"true" doc:"of the request, as the refused person has it"`
		For    string `query:"for" doc:"how long, such as 30d, which it is if it is not said"`
		Proof  string `query:"proof" doc:"SPF or DKIM, if SPF passed the client that was refused" enum:"none"`
		Author string `query:"author" doc:"who grants it"`
	}) (a RequestGrant, err error) {
		q, err := s.openRequest(asked.Ref)
		if err != nil {
			return a, err
		}
		now, by := time.Now(), c.by(asked.Author)
		life, err := live.ParseLife(cmp.Or(asked.For, DefaultGrant))
		if err != nil {
			return a, badf("for: %v", err)
		}
		proof := receipt.Proof(asked.Proof)
		if proof == "" {
			proof = s.proofOf(c.Context(), q)
		}
		if proof == receipt.Unknown {
			return a, fault{http.StatusServiceUnavailable, "DNS does not tell whether SPF passes " + q.Client + " for " + q.Sender +
				`: try again in a minute, or say proof=none (blockd requests grant --no-proof) to let in whoever writes this address`, 60}
		}
		change := live.Change{Entry: cmp.Or(q.Sender, q.Client), Action: lists.Allow, Why: "request " + q.Ref, Author: by, Expires: now.Add(life), NeedsProof: proof == receipt.SPF}
		detail := fmt.Sprintf("for %s, until %s", change.Entry, change.Expires.UTC().Format(time.RFC3339))
		if change.NeedsProof {
			detail += ", with SPF or DKIM"
		}
		if err := c.record(audit.Line{By: by, Action: audit.RequestGrant, Subject: q.Ref, Detail: detail}); err != nil {
			return a, err
		}
		if proof != q.Proof && asked.Proof == "" {
			if err := s.settings.Requests.NoteProof(q.Ref, proof); err != nil {
				return a, err
			}
		}
		outcomes, ok := s.commit(c.w, c.Request, []live.Change{change})
		if !ok {
			return a, errAnswered
		}
		if q, err = s.settings.Requests.Decide(q.Ref, receipt.Granted, by, change.Expires, now); err != nil {
			return a, err
		}
		s.log.Info("request granted", slog.String("ref", q.Ref), slog.String("by", by), slog.String("sender", q.Sender), slog.Time("until", change.Expires))
		return RequestGrant{q.Shown(), newChangeResult(outcomes[0])}, nil
	})
}

// proofOf is what showed that the mail of a request was its sender's. A request that came before that was asked, or whose DNS
// gave no answer then, is asked about now.
func (s *Server) proofOf(ctx context.Context, q receipt.Request) receipt.Proof {
	if q.Sender == "" || q.Proof == receipt.SPF || q.Proof == receipt.NoProof || s.settings.Proves == nil {
		return q.Proof
	}
	return s.settings.Proves(ctx, q)
}

func (s *Server) declineRequest() method {
	return operate(s, operation{method: http.MethodPost, id: "declineRequest", summary: "Decline a request", about: "The page of the refused person then says so. Nobody is written to.",
		right: writing, faults: requestFaults, lost: requestsLost,
	}, func(c call, asked struct {
		Ref    string `query:"ref" required:"true" doc:"of the request, as the refused person has it"`
		Author string `query:"author" doc:"who declines it"`
	}) (q receipt.Request, err error) {
		if q, err = s.openRequest(asked.Ref); err != nil {
			return q, err
		}
		by := c.by(asked.Author)
		if err := c.record(audit.Line{By: by, Action: audit.RequestDecline, Subject: q.Ref, Detail: "for " + cmp.Or(q.Sender, q.Client)}); err != nil {
			return q, err
		}
		if q, err = s.settings.Requests.Decide(q.Ref, receipt.Declined, by, time.Time{}, time.Now()); err == nil {
			s.log.Info("request declined", slog.String("ref", q.Ref), slog.String("by", by), slog.String("sender", q.Sender))
		}
		return q.Shown(), err
	})
}
