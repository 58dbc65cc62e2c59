package httpapi

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"blockd/index/live"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy/junk"
	"blockd/records/audit"
	"blockd/records/correspondents"
)

// DefaultAdoption is how long an adopted proposal blocks unless "for" says otherwise.
const DefaultAdoption = "90d"

// Proposal is one as it is shown.
type Proposal struct {
	junk.Proposal
	Correspondent bool `json:"correspondent,omitempty" doc:"users of this server write to the address"`
}

// ProposalList is the answer to GET /v1/proposals.
type ProposalList struct {
	Proposals []Proposal `json:"proposals"` // those that wait first, then the newest; never null
	Damaged   int        `json:"damaged"`   // lines of the file that cannot be read
}

// ProposalAdoption is the answer to POST /v1/proposals/adopt.
type ProposalAdoption struct {
	Proposal
	Change ChangeResult `json:"change"` // the live entry that blocks the sender
}

// newProposalList shows the proposals of a state, of all states for "". known may be nil.
func newProposalList(box *junk.Box, known *correspondents.Set, state junk.State, now time.Time) (ProposalList, error) {
	l := ProposalList{Proposals: []Proposal{}}
	all, damaged, err := box.All(state, now)
	for _, p := range all {
		l.Proposals = append(l.Proposals, shownProposal(p, known))
	}
	l.Damaged = damaged
	return l, err
}

func shownProposal(p junk.Proposal, known *correspondents.Set) Proposal {
	a, err := addr.Parse(p.Entry)
	return Proposal{p, err == nil && known.Has(a)}
}

// ParseProposalState reads a state, "" is any.
func ParseProposalState(text string) (junk.State, error) {
	switch s := junk.State(text); s {
	case "", junk.Open, junk.Adopted, junk.Declined:
		return s, nil
	}
	return "", fmt.Errorf("state: want open, adopted or declined, have %q", text)
}

// proposalFaults are those of package junk.
var proposalFaults = []faultKind{{junk.ErrNoProposal, http.StatusNotFound}, {junk.ErrDecided, http.StatusConflict}}

const proposalsLost = "proposals cannot be read or changed"

func (s *Server) listProposals() method {
	return operate(s, operation{method: http.MethodGet, id: "proposals", summary: "Senders whom several users do not want, and what became of them", right: privately, large: true, lost: proposalsLost}, func(_ call, q struct {
		State string `query:"state" doc:"all of them if it is not said" enum:"open,adopted,declined"`
	}) (ProposalList, error) {
		return newProposalList(s.settings.Junk.Box, s.settings.Junk.Correspondents, junk.State(q.State), time.Now())
	})
}

// openProposal is one that waits for a person.
func (s *Server) openProposal(entry string) (p junk.Proposal, err error) {
	a, bad := addr.Parse(entry)
	key, ok := a.Key()
	if bad != nil || !ok {
		return p, badf("entry: want the address of a proposal")
	}
	return s.settings.Junk.Box.Get(key.Text, time.Now())
}

func why(p junk.Proposal) string {
	return fmt.Sprintf("%s of %s, %d by complaint", term.Counted(p.Users, "user"), term.Counted(p.Domains, "domain"), p.Complaints)
}

// adoptProposal blocks the sender of a proposal for everybody. The entry comes first: if the daemon ends between the two, the proposal still waits,
// and to adopt it once more changes nothing.
func (s *Server) adoptProposal() method {
	return operate(s, operation{method: http.MethodPost, id: "adoptProposal", summary: "Block the sender of a proposal for everybody",
		about: "Adds a live entry. A sender that users of this server write to, or that the gate protects, wants force=1.",
		right: writing, faults: proposalFaults, lost: proposalsLost,
	}, func(c call, q struct {
		Entry  string `query:"entry" required:"true" doc:"the address that is proposed" example:"promo@bulk.example"`
		For    string `query:"for" doc:"how long, such as 90d, which it is if it is not said"`
		Force  bool   `query:"force" doc:"it is meant, whatever speaks against it"`
		Author string `query:"author" doc:"who adopts it"`
	}) (a ProposalAdoption, err error) {
		p, err := s.openProposal(q.Entry)
		if err != nil {
			return a, err
		}
		now, by := time.Now(), c.by(q.Author)
		life, err := live.ParseLife(cmp.Or(q.For, DefaultAdoption))
		if err != nil {
			return a, badf("for: %v", err)
		}
		shown := shownProposal(p, s.settings.Junk.Correspondents)
		switch {
		case q.Force:
		case shown.Correspondent:
			return a, faultf(http.StatusConflict, "users of this server write to %s; if that is meant, say force=1", p.Entry)
		case p.Complaints == p.Users:
			return a, faultf(http.StatusConflict, "nobody has moved mail of %s to Junk: complaints alone say so, and the sender of the messages can write these, also under another's name; if that is meant, say force=1", p.Entry)
		}
		change := live.Change{Entry: p.Entry, Action: lists.Block, Why: "users agree: " + why(p), Author: by, Expires: now.Add(life), Force: q.Force}
		if err := c.record(audit.Line{By: by, Action: audit.ProposalAdopt, Subject: p.Entry, Detail: fmt.Sprintf("%s, until %s", why(p), change.Expires.UTC().Format(time.RFC3339))}); err != nil {
			return a, err
		}
		outcomes, ok := s.commit(c.w, c.Request, []live.Change{change})
		if !ok {
			return a, errAnswered
		}
		if shown.Proposal, err = s.settings.Junk.Box.Decide(p.Entry, junk.Adopted, by, change.Expires, now); err != nil {
			return a, err
		}
		s.log.Info("proposal adopted", slog.String("entry", p.Entry), slog.String("by", by), slog.Time("until", change.Expires))
		return ProposalAdoption{shown, newChangeResult(outcomes[0])}, nil
	})
}

func (s *Server) declineProposal() method {
	return operate(s, operation{method: http.MethodPost, id: "declineProposal", summary: "Decline a proposal", about: "It waits again when as many users have said so anew.",
		right: writing, faults: proposalFaults, lost: proposalsLost,
	}, func(c call, q struct {
		Entry  string `query:"entry" required:"true" doc:"the address that is proposed" example:"promo@bulk.example"`
		Author string `query:"author" doc:"who declines it"`
	}) (a Proposal, err error) {
		p, err := s.openProposal(q.Entry)
		if err != nil {
			return a, err
		}
		by := c.by(q.Author)
		if err := c.record(audit.Line{By: by, Action: audit.ProposalDecline, Subject: p.Entry, Detail: why(p)}); err != nil {
			return a, err
		}
		if p, err = s.settings.Junk.Box.Decide(p.Entry, junk.Declined, by, time.Time{}, time.Now()); err == nil {
			s.log.Info("proposal declined", slog.String("entry", p.Entry), slog.String("by", by))
		}
		return shownProposal(p, s.settings.Junk.Correspondents), err
	})
}
