package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

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

func (s *Server) proposals(w http.ResponseWriter, r *http.Request) {
	values, err := parseQuery(r.URL.RawQuery)
	state := junk.State("")
	if err == nil {
		var v map[string]string
		if v, err = onlyOnce(values, []string{"state"}); err == nil {
			state, err = ParseProposalState(v["state"])
		}
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	l, err := newProposalList(s.settings.Junk.Box, s.settings.Junk.Correspondents, state, time.Now())
	if err != nil {
		s.proposalFault(w, err)
		return
	}
	send(w, http.StatusOK, typeJSON, l)
}

// proposed are the parameters of a decision, and the open proposal that it is about. If they are wrong, proposed has answered.
func (s *Server) proposed(w http.ResponseWriter, r *http.Request, known ...string) (v map[string]string, p junk.Proposal, ok bool) {
	values, err := parseQuery(r.URL.RawQuery)
	if err == nil {
		v, err = onlyOnce(values, append(known, "entry", "author"))
	}
	if err == nil {
		err = zeroOrOne(v, "force")
	}
	var key addr.Key
	if err == nil {
		a, bad := addr.Parse(v["entry"])
		if key, ok = a.Key(); bad != nil || !ok {
			err = errors.New("entry: want the address of a proposal")
		}
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return v, p, false
	}
	if p, err = s.settings.Junk.Box.Get(key.Text, time.Now()); err != nil {
		s.proposalFault(w, err)
		return v, p, false
	}
	return v, p, true
}

// AdoptProposalLine is the line of the journal about a proposal that is adopted until a time.
func AdoptProposalLine(p junk.Proposal, by string, until time.Time) audit.Line {
	return audit.Line{By: by, Action: audit.ProposalAdopt, Subject: p.Entry, Detail: fmt.Sprintf("%s, until %s", why(p), until.UTC().Format(time.RFC3339))}
}

// DeclineProposalLine is the line about one that is declined.
func DeclineProposalLine(p junk.Proposal, by string) audit.Line {
	return audit.Line{By: by, Action: audit.ProposalDecline, Subject: p.Entry, Detail: why(p)}
}

func why(p junk.Proposal) string {
	return fmt.Sprintf("%s of %s, %d by complaint", term.Counted(p.Users, "user"), term.Counted(p.Domains, "domain"), p.Complaints)
}

// adopt blocks the sender of a proposal for everybody. The entry comes first: if the daemon ends between the two, the proposal still waits, and to
// adopt it once more changes nothing.
func (s *Server) adoptProposal(w http.ResponseWriter, r *http.Request) {
	v, p, ok := s.proposed(w, r, "for", "force")
	if !ok {
		return
	}
	now, by := time.Now(), s.callerOf(r).author(v["author"], r)
	life, err := live.ParseLife(cmp.Or(v["for"], DefaultAdoption))
	if err != nil {
		fail(w, http.StatusBadRequest, "for: "+err.Error())
		return
	}
	shown := shownProposal(p, s.settings.Junk.Correspondents)
	if shown.Correspondent && v["force"] != "1" {
		fail(w, http.StatusConflict, "users of this server write to "+p.Entry+`; if that is meant, say force=1`)
		return
	}
	if p.Complaints == p.Users && v["force"] != "1" {
		fail(w, http.StatusConflict, "nobody has moved mail of "+p.Entry+` to Junk: complaints alone say so, and the sender of the messages can write these, also under another's name; if that is meant, say force=1`)
		return
	}
	change := live.Change{Entry: p.Entry, Action: lists.Block, Why: "users agree: " + why(p), Author: by, Expires: now.Add(life), Force: v["force"] == "1"}
	if !s.record(w, AdoptProposalLine(p, by, change.Expires)) {
		return
	}
	outcomes, ok := s.commit(w, r, []live.Change{change})
	if !ok {
		return
	}
	if p, err = s.settings.Junk.Box.Decide(p.Entry, junk.Adopted, by, change.Expires, now); err != nil {
		s.proposalFault(w, err)
		return
	}
	s.log.Info("proposal adopted", slog.String("entry", p.Entry), slog.String("by", by), slog.Time("until", change.Expires))
	shown.Proposal = p
	send(w, http.StatusOK, typeJSON, ProposalAdoption{shown, newChangeResult(outcomes[0])})
}

func (s *Server) declineProposal(w http.ResponseWriter, r *http.Request) {
	v, p, ok := s.proposed(w, r)
	if !ok {
		return
	}
	by := s.callerOf(r).author(v["author"], r)
	if !s.record(w, DeclineProposalLine(p, by)) {
		return
	}
	p, err := s.settings.Junk.Box.Decide(p.Entry, junk.Declined, by, time.Time{}, time.Now())
	if err != nil {
		s.proposalFault(w, err)
		return
	}
	s.log.Info("proposal declined", slog.String("entry", p.Entry), slog.String("by", by))
	send(w, http.StatusOK, typeJSON, shownProposal(p, s.settings.Junk.Correspondents))
}

// proposalFault answers with an error of package junk.
func (s *Server) proposalFault(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, junk.ErrNoProposal):
		fail(w, http.StatusNotFound, err.Error())
	case errors.Is(err, junk.ErrDecided):
		fail(w, http.StatusConflict, err.Error())
	default:
		s.log.Error("proposals cannot be read or changed", slog.Any("error", err))
		fail(w, http.StatusInsufficientStorage, err.Error())
	}
}

func proposalParam() *huma.Param {
	p := parameter("entry", "the address that is proposed", "promo@bulk.example")
	p.Required = true
	return p
}

func describeProposals(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "proposals", Summary: "Senders whom several users do not want, and what became of them",
		Parameters: []*huma.Param{choice("state", "all of them if it is not said", "open", "adopted", "declined")},
		Responses:  map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ProposalList{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusInsufficientStorage)
	return op
}

func describeAdoptProposal(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "adoptProposal", Summary: "Block the sender of a proposal for everybody",
		Description: "Adds a live entry. A sender that users of this server write to, or that the gate protects, wants force=1.",
		Parameters: []*huma.Param{proposalParam(), parameter("for", "how long, such as 90d, which it is if it is not said", ""),
			switched("force", "it is meant, whatever speaks against it"), parameter("author", "who adopts it", "")},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ProposalAdoption{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusInsufficientStorage)
	return op
}

func describeDeclineProposal(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "declineProposal", Summary: "Decline a proposal",
		Description: "It waits again when as many users have said so anew.",
		Parameters:  []*huma.Param{proposalParam(), parameter("author", "who declines it", "")},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, Proposal{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusInsufficientStorage)
	return op
}
