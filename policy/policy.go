// Package policy decides. Every front door asks it and only translates the
// answer into its own protocol; no other package knows what a match leads to.
//
// The rules are those of docs/lists.md, section 4: an allow entry that counts
// beats everything, between blocks the most specific one decides, and a list in
// shadow mode is reported and never counts. Entries for the sender and for the
// client's address are judged together. What goes wrong inside is Unknown: it is
// counted and logged, and it refuses nobody.
package policy

import (
	"log/slog"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/addr"
	"blockd/ask"
	"blockd/history"
	"blockd/index"
	"blockd/live"
	"blockd/msgauth"
	"blockd/repeat"
	"blockd/rule"
	"blockd/verdict"
)

// Settings of a Checker.
type Settings struct {
	RecipientsExempt []string             // local-parts, compared without case, at any domain
	OnError          rule.OnError         // what an unreadable store leads to; "" = accept
	Lists            map[string]rule.List // by the list's name; a list that is not here has the zero rule
	Policies         []rule.Recipients    // which lists count for whom; a recipient of none has all lists

	Contact string // at the end of every refusal: see CheckContact

	Auth rule.Auth // what allow entries have to show

	FirstSeen FirstSeen // what becomes of mail from new domains

	// Live are entries that act beside those of the index; nil = there are none.
	Live *live.Set

	// Stores are lists that are asked in their stores, beside those of the index; nil = there are none.
	Stores *ask.Sets

	// History remembers decisions; nil = none does.
	History *history.Log

	// Repeats folds refusals that a client repeats; nil = each is written in full.
	Repeats *repeat.Table

	// Decided is told of each decision that History remembers. Like Completed it must
	// return at once; nil = nobody wants to know.
	Decided func(history.Record)

	// Completed is told of each message that the next server has accepted, and whose
	// sender and client no list has any entry for: the sender, and the client. It is
	// called by every session and must return at once; nil = nobody wants to know.
	// Wants says whether it would be of use, for a door to which the end of a message
	// costs something; nil = always.
	Completed func(addr.Addr, netip.Addr)
	Wants     func(addr.Addr, netip.Addr) bool
}

// Checker decides about senders and clients. It is safe for concurrent use and
// holds no generation: each verdict comes whole from the one that live returns.
type Checker struct {
	live     func() *index.Index
	exempt   map[string]bool // canonical local-parts
	defers   bool            // on an internal error
	rules    map[string]rule.List
	contact  string
	policies policyTable
	entries  *live.Set
	stores   *ask.Sets
	complete func(addr.Addr, netip.Addr)
	wanted   func(addr.Addr, netip.Addr) bool
	history  *history.Log
	decided  func(history.Record)
	repeats  *repeat.Table
	allows   *verdict.Requirements
	resolver *msgauth.Resolver // nil = there is none
	unsure   bool              // what DNS did not say is 451
	sources  verdict.Sources   // of all rules
	narrow   bool              // there are lists that are not asked about envelopes
	needs    Needs             // of the rules alone
	first    FirstSeen
	*instruments
}

// New returns a Checker over live, which must never return nil. Metrics go to
// reg, which can hold those of one Checker.
func New(live func() *index.Index, s Settings, log *slog.Logger, reg prometheus.Registerer) *Checker {
	c := &Checker{
		live:        live,
		exempt:      exemptLocals(s.RecipientsExempt),
		defers:      s.OnError == rule.TempfailOnError,
		rules:       s.Lists,
		contact:     s.Contact,
		policies:    newPolicyTable(s.Policies, s.Lists),
		entries:     s.Live,
		stores:      s.Stores,
		complete:    s.Completed,
		wanted:      s.Wants,
		history:     s.History,
		decided:     s.Decided,
		repeats:     s.Repeats,
		allows:      requirementsOf(s.Lists, s.Auth),
		resolver:    s.Auth.Resolver,
		unsure:      s.Auth.Tempfail,
		sources:     sourcesOf(s.Lists),
		narrow:      narrowed(s.Lists),
		needs:       needsOf(s.Lists),
		first:       s.FirstSeen,
		instruments: newInstruments(log, reg),
	}
	c.needs.Marks = c.needs.Marks || c.first.marks()
	return c
}

// serving is the generation that serves now; nil where a defect of ours has lost it, which
// the verdicts then say.
func (c *Checker) serving() (ix *index.Index) {
	defer func() { recover() }()
	return c.live()
}
