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
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/index/live"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/mail/msgauth"
	"blockd/policy/ask"
	"blockd/policy/hits"
	"blockd/policy/reply"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/history"
	"blockd/records/repeat"
)

// Settings of a Checker.
type Settings struct {
	RecipientsExempt []string             // local-parts, compared without case, at any domain
	OnError          rule.OnError         // what an unreadable store leads to; "" = accept
	Lists            map[string]rule.List // by the list's name; a list that is not here has the zero rule
	Policies         []rule.Recipients    // which lists count for whom; a recipient of none has all lists
	Owners           rule.Owners          // whose entries count for mail to a recipient

	Contact string // at the end of every refusal: see CheckContact
	Text    string // to the client, for lists without a text of their own: as rule.List.Text

	// NewRef makes the references of decisions, of at most 16 octets; nil = reply.NewRef.
	NewRef func() string

	Auth rule.Auth // what allow entries have to show

	FirstSeen FirstSeen // what becomes of mail from new domains

	Correspondents Correspondents // the people that users write to

	// Paused are the lists whose blocks do not count at a time; nil = there are none. What it returns must not change.
	Paused func(time.Time) map[string]bool

	// ShareKey places senders for lists that count for a share of them.
	ShareKey [verdict.ShareKeySize]byte

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

// Checker decides about senders and clients, by Settings that may be exchanged while it works. It is safe for
// concurrent use and holds no generation: each verdict comes whole from the one that serves. A message, a question and a
// batch are decided whole by the Settings in force at their beginning.
type Checker struct {
	serves func() *index.Index
	now    atomic.Pointer[checks]
	*instruments
}

// New returns a Checker over live, which must never return nil. Metrics go to
// reg, which can hold those of one Checker.
func New(live func() *index.Index, s Settings, log *slog.Logger, reg prometheus.Registerer) *Checker {
	c := &Checker{serves: live, instruments: newInstruments(log, reg)}
	c.now.Store(newChecks(live, s, c.instruments))
	return c
}

// Renew makes s the Settings of whatever begins from now on; what has begun goes on as it was.
func (c *Checker) Renew(s Settings) { c.now.Store(newChecks(c.serves, s, c.instruments)) }

// NewRef makes a reference for an answer that has none of a decision.
func (c *Checker) NewRef() string { return c.now.Load().newRef() }

// checks are a Checker's Settings as decisions take them. They never change.
type checks struct {
	live     func() *index.Index
	exempt   map[string]bool // canonical local-parts
	defers   bool            // on an internal error
	rules    map[string]rule.List
	contact  string
	text     string
	newRef   func() string
	policies policyTable
	owners   rule.Owners
	fixed    map[string]bool // lists that no owner overrides; nil = there are none
	paused   func(time.Time) map[string]bool
	shares   *verdict.Shares
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
	partners Correspondents
	*instruments
}

func newChecks(live func() *index.Index, s Settings, in *instruments) *checks {
	c := &checks{
		live:        live,
		exempt:      exemptLocals(s.RecipientsExempt),
		defers:      s.OnError == rule.TempfailOnError,
		rules:       s.Lists,
		contact:     s.Contact,
		text:        s.Text,
		newRef:      s.NewRef,
		policies:    newPolicyTable(s.Policies, s.Lists),
		owners:      s.Owners,
		fixed:       fixedLists(s.Lists),
		paused:      s.Paused,
		shares:      sharesOf(s.Lists, s.ShareKey),
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
		partners:    s.Correspondents,
		instruments: in,
	}
	if c.paused == nil {
		c.paused = func(time.Time) map[string]bool { return nil }
	}
	if c.newRef == nil {
		c.newRef = reply.NewRef
	}
	c.needs.Marks = c.needs.Marks || c.first.marks()
	c.needs.Login = c.needs.Login || c.first.Domains != nil || c.partners.Learn && c.partners.Known != nil
	c.needs.Message = c.needs.Message || c.partners.Excuse && c.partners.Known != nil
	return c
}

// serving is the generation that serves now; nil where a defect of ours has lost it, which
// the verdicts then say.
func (c *checks) serving() (ix *index.Index) {
	defer func() { recover() }()
	return c.live()
}

// What follows asks by the Settings in force.

// Ask answers one question. With a Recipient the verdict is by the lists of its policy, and its Outcome is what a
// transaction would decide.
//
// It allocates nothing for a clear sender that is written in canonical form.
func (c *Checker) Ask(q Question) verdict.Verdict { return c.now.Load().answer(q) }

// AskAll answers the questions in order, each as Ask does, and all of them by one
// generation. With a few hundred it is several times as fast as Ask. It allocates nothing
// for clear senders in canonical form once b has the room.
func (c *Checker) AskAll(b *Batch, questions []Question) []verdict.Verdict {
	return c.now.Load().answerAll(b, questions)
}

// Needs returns what the lists want now.
func (c *Checker) Needs() Needs { return c.now.Load().wanting() }

// Contact says where to ask about what a list has, as a client reads it at the end of a refusal; "" where the configuration
// names nobody.
func (c *Checker) Contact(list, ref string) string { return c.now.Load().contactOf(list, ref) }

// Percent is the share of senders that the blocks of a list count for: 100 is all.
func (c *Checker) Percent(list string) float64 { return c.now.Load().shares.Percent(list) }

// About is where a list comes from: by the configuration, by the files that serve, and by the catalogue, in this order.
func (c *Checker) About(list string) lists.About {
	now := c.now.Load()
	var rows []index.ListInfo
	if ix := now.serving(); ix != nil {
		rows = ix.Lists()
	}
	return now.rules[list].Origin(list, rows)
}

// LogsMore reports whether a door may write another line about a client, and counts it:
// a client that causes many has only their number written (package repeat).
func (c *Checker) LogsMore(client netip.Addr) bool { return c.now.Load().logsMore(client) }

// Hits has what the lists were worth since the start.
func (c *Checker) Hits() *hits.Table { return c.hits }
