package junk

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

// Kind says how a user has called a sender unwanted.
type Kind string

// The kinds of voices.
const (
	Moved     Kind = "junk"      // by moving a message to Junk
	Complaint Kind = "complaint" // by a complaint that names a message of ours to that user (RFC 5965)
)

// State is what has become of a proposal.
type State string

// The states.
const (
	Open     State = "open"
	Adopted  State = "adopted"
	Declined State = "declined"
)

// The errors of decisions.
var (
	// ErrNoProposal reports that no sender of this name is proposed.
	ErrNoProposal = errors.New("nobody is proposed by this address")
	// ErrDecided reports that a person has decided already, and nothing new was said since.
	ErrDecided = errors.New("that is decided already")
)

// Proposal is a sender that several users do not want, or that a person has decided about.
type Proposal struct {
	Entry      string    `json:"entry"` // the address that would be blocked for everybody
	State      State     `json:"state"`
	Users      int       `json:"users"`      // mailboxes that say so, each counted once; since the decision, if there is one
	Domains    int       `json:"domains"`    // of these
	Complaints int       `json:"complaints"` // of Users, those who say it by a complaint
	First      time.Time `json:"first,omitzero"`
	Last       time.Time `json:"last,omitzero"`

	Decided *time.Time `json:"decided,omitempty"`
	By      string     `json:"by,omitempty"`
	Until   *time.Time `json:"until,omitempty"` // of the entry that was made
}

// voice is what one user says of one sender.
type voice struct {
	at   time.Time
	kind Kind
}

// decision is what a person has said of a sender.
type decision struct {
	state State
	at    time.Time
	by    string
	until time.Time
}

// opinion is all that is known of one sender.
type opinion struct {
	voices  map[string]voice // by mailbox
	decided decision
}

// proposal counts the voices that are younger than since, and than the last decision. count is how many of them there have to be, of so
// many domains; ok is false if there are fewer, and no person has decided.
func (o *opinion) proposal(entry string, since time.Time, count, domains int) (p Proposal, ok bool) {
	p = Proposal{Entry: entry, State: Open}
	if o.decided.at.After(since) {
		since = o.decided.at
	}
	of := map[string]bool{}
	for user, v := range o.voices {
		if !v.at.After(since) {
			continue
		}
		p.Users++
		of[user[strings.LastIndexByte(user, '@')+1:]] = true
		if v.kind == Complaint {
			p.Complaints++
		}
		if p.First.IsZero() || v.at.Before(p.First) {
			p.First = v.at
		}
		if v.at.After(p.Last) {
			p.Last = v.at
		}
	}
	p.Domains = len(of)
	if p.Users >= count && p.Domains >= domains && p.Users > 0 {
		return p, true
	}
	if o.decided.state == "" {
		return p, false
	}
	at := o.decided.at
	p.State, p.By, p.Decided = o.decided.state, o.decided.by, &at
	if !o.decided.until.IsZero() {
		until := o.decided.until
		p.Until = &until
	}
	return p, true
}

// newestFirst orders proposals: those that wait before the others, and then by what was said or decided last.
func newestFirst(all []Proposal) {
	last := func(p Proposal) time.Time {
		if p.Decided != nil && p.Decided.After(p.Last) {
			return *p.Decided
		}
		return p.Last
	}
	slices.SortFunc(all, func(a, b Proposal) int {
		if (a.State == Open) != (b.State == Open) {
			if a.State == Open {
				return -1
			}
			return 1
		}
		return cmp.Or(last(b).Compare(last(a)), cmp.Compare(a.Entry, b.Entry))
	})
}
