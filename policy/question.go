package policy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"time"

	"blockd/index"
	"blockd/index/live"
	"blockd/mail/addr"
	"blockd/mail/digest"
	"blockd/policy/ask"
	"blockd/policy/verdict"
)

// Question is what people and programs ask a Checker. Nothing is remembered of it: its Text
// may lie in memory that changes once the verdict is no longer used, which shares it.
type Question struct {
	About     Subject
	Text      string     // the sender, as Mail has it; the domain; or the digest
	Client    netip.Addr // that the sender's mail comes from, or that is asked about; zero = unknown
	Recipient string     // that the sender's mail goes to, as Transaction.Recipient takes it; "" = any

	// Lists are those that count, by name; nil = all. With a Recipient it is nil.
	Lists map[string]bool
}

// Subject is what a question is about.
type Subject uint8

// The subjects.
const (
	// AboutSender asks about mail of a sender.
	AboutSender Subject = iota
	// AboutClient asks about a client before it has named a sender: by the entries for
	// client addresses alone.
	AboutClient
	// AboutDomain asks what all senders at a domain have in common: the entries for it and
	// for those above it. Entries for single addresses, local-parts and patterns cover some
	// senders there and not others, so they have no part in it.
	AboutDomain
	// AboutHash asks about mail of a sender of which only a digest is known, as hashed DNS
	// lists are asked (HashBL): that of local-part@domain in lower case. Text is the digest,
	// in any case: md5 (32) or sha1 (40) in hexadecimal digits, or sha256 in base32 without
	// padding (52) or hexadecimal digits (64); its length tells the algorithm, and
	// digest.Parse reads it alike.
	//
	// If a list or a live entry has an entry for an address with this digest, be it one that
	// blocks or allows, the verdict is that of a question about this address: entries for its
	// domain, exceptions, patterns and lists in shadow mode count as ever, and Sender is the
	// address. If there is none, the verdict is Clear and Sender is null: entries for domains
	// tell no digest. The verdict is Unknown with an error that wraps digest.ErrText of a text
	// that is no digest, index.ErrNoDigests as long as the serving generation was built without
	// the algorithm (index.hashes), or index.ErrRead.
	AboutHash

	aboutField // an address of a header field, for a transaction
)

// question is what a Checker is asked, by people and by transactions.
type question struct {
	Question
	source verdict.Source // of aboutField
	index  *index.Index   // that answers; nil = the one that serves
	later  bool           // the answers of stores may come later
	mail   bool           // what becomes of mail is decided by it

	uncounted bool // as Batch.Uncounted
}

// answer is Checker.Ask.
func (c *checks) answer(q Question) verdict.Verdict {
	var ix *index.Index
	if q.Recipient != "" {
		ix = c.serving()
	}
	v := c.ask(question{Question: q, index: ix})
	c.to(&v, ix, q.Recipient)
	return v
}

// questions is the door that questions come in by. It can do what the lists want, but drop
// a message, and leaves no trace.
var questions = Door{Marks: true, Quarantines: true, forgets: true}

// to makes v the answer for one recipient; "" = any.
func (c *checks) to(v *verdict.Verdict, ix *index.Index, recipient string) {
	if recipient == "" {
		return
	}
	d := c.decideAsked(*v, ix, recipient)
	if d.Verdict != nil {
		*v = *d.Verdict
	}
	v.Recipient, v.Outcome = recipient, d.Outcome.String()
}

// decideAsked is the decision about mail with verdict v: that of a transaction, as of all
// mail.
func (c *checks) decideAsked(v verdict.Verdict, ix *index.Index, recipient string) Decision {
	t := Transaction{checker: c, door: &questions, verdicts: []verdict.Verdict{v}}
	if ix != nil && c.personal(ix) && !v.Owned() {
		t.personal = ix
	}
	return t.Recipient(recipient)
}

// ask answers one question, and waits for what stores say.
func (c *checks) ask(q question) verdict.Verdict {
	v, _ := c.begin(q)
	return v
}

// begin is ask that does not wait for stores where q lets them answer later: asked is then what was asked, and v is
// not decided before finish. It is nil else.
func (c *checks) begin(q question) (v verdict.Verdict, asked *ask.Inquiry) {
	v = verdict.New(nil)
	now := time.Now()
	v.Requirements, v.Paused, v.NoOverride, v.Shares = c.allows, c.paused(now), c.fixed, c.shares
	defer func() {
		if p := recover(); p != nil {
			// A defect of ours must cost neither the session nor the sender.
			generation := v.Generation
			v = verdict.New(fmt.Errorf("panic in the look-up: %v", p))
			v.Generation, v.Requirements = generation, c.allows
			c.failed(inPanic, v.Err, slog.String("stack", string(debug.Stack())))
			asked = nil
		}
		if asked == nil && !q.uncounted {
			c.count(&v, q.About, now)
		}
	}()
	ix := q.index
	if ix == nil {
		ix = c.live() // once: the whole verdict comes from one generation
	}
	v.Generation = ix.Generation()
	var odd, err error // odd is neither the same as listed nor a fault of ours
	readings := []addr.Reading(nil)
	switch q.About {
	case AboutSender, aboutField:
		if v.Sender, odd = addr.Parse(q.Text); strange(v.Sender, odd) {
			readings = addr.Readings(q.Text)
		}
		if odd != nil || len(readings) > 0 && readings[0].Addr.Null() {
			v.Unread = q.Text
		}
	case AboutDomain:
		v.Domain, odd = addr.DomainKey(q.Text)
	case AboutHash:
		var d digest.Digest
		if d, odd = digest.Parse(q.Text); odd == nil {
			v.Sender, err = c.addressOf(ix, d, now)
		}
	}
	v.Client, v.Source = q.Client.WithZone("").Unmap(), q.source
	if err == nil {
		asked, err = c.match(&v, ix, readings, &q, now)
	}
	if err != nil {
		v.Err = err // a failing disk blocks nobody
		c.failed(inStore, err)
		return v, nil
	}
	if odd != nil {
		v.Err = odd
	}
	v.Excusable = len(v.Matches) > 0 && c.excuses(&v)
	v.Decide(q.Lists)
	return v, asked
}

// finish waits for what stores say about the sender of v, and decides anew.
func (c *checks) finish(ctx context.Context, v *verdict.Verdict, asked *ask.Inquiry) {
	now := time.Now()
	defer func() {
		if p := recover(); p != nil { // what the store says may be an exception, so nothing is decided without it
			seen, generation := v.Seen, v.Generation
			*v = verdict.New(fmt.Errorf("panic in a question to a store: %v", p))
			v.Seen, v.Generation, v.Requirements = seen, generation, c.allows
			c.failed(inPanic, v.Err, slog.String("stack", string(debug.Stack())))
		}
		c.count(v, AboutSender, now)
	}()
	c.amend(ctx, v, asked, true, now)
	v.Excusable = len(v.Matches) > 0 && c.excuses(v)
	v.Decide(nil)
}

// amend adds to v what stores say. For mail a list without a filter is as if it were empty, unless another list blocks;
// programs are told that it cannot be asked.
func (c *checks) amend(ctx context.Context, v *verdict.Verdict, asked *ask.Inquiry, mail bool, now time.Time) {
	v.Matches, v.Lists, v.Unasked = asked.Amend(ctx, v.Matches, v.Lists, now)
	for i := range v.Unasked {
		u := &v.Unasked[i]
		if u.Faint = u.Faint && mail; !u.Faint && v.Err == nil {
			v.Err = u.Err
		}
	}
}

// addressOf returns the address with a digest that a list or a live entry has an entry for;
// null if there is none.
func (c *checks) addressOf(ix *index.Index, d digest.Digest, now time.Time) (addr.Addr, error) {
	address, found, err := ix.AddressOf(d)
	if err == nil && !found {
		address, _ = c.entries.AddressOf(d, now)
	}
	return address, err
}

// strange reports whether a text may have other readings than that of addr.Parse, which
// is given.
func strange(sender addr.Addr, err error) bool {
	return err != nil || sender.Domain() == "" && !sender.Null()
}

// match sets what v is about and the entries that cover it: the first reading that a
// list has an entry for, or else the first. later is what stores were asked if they may answer later.
func (c *checks) match(v *verdict.Verdict, ix *index.Index, readings []addr.Reading, q *question, now time.Time) (later *ask.Inquiry, err error) {
	for i := range max(1, len(readings)) {
		if readings != nil {
			v.Sender, v.Domain = readings[i].Addr, readings[i].Domain
		}
		matches, err := lookup(v, ix, now)
		if err != nil {
			return nil, err
		}
		matches, v.Lists = c.entries.Amend(matches, ix, live.Question{Sender: v.Sender, Domain: v.Domain, Client: v.Client}, now)
		v.Matches = c.asked(matches, v.Lists, v.Source)
		if asked := c.stores.Begin(v.Sender, v.Domain, v.Source); asked != nil {
			if q.later && len(readings) <= 1 {
				return asked, nil
			}
			c.amend(context.Background(), v, asked, q.mail, now)
		}
		if len(v.Matches) > 0 && !v.AboutClient(0) {
			return nil, nil
		}
	}
	if len(readings) > 1 { // the same entries for the client, if any
		v.Sender, v.Domain = readings[0].Addr, readings[0].Domain
	}
	return nil, nil
}

// lookup returns the entries that cover what v is about. Those for senders are
// all more specific than those for clients.
func lookup(v *verdict.Verdict, ix *index.Index, now time.Time) (matches []index.Match, err error) {
	if !v.Sender.Null() { // bounces must get through: RFC 5321, section 4.5.5
		matches, err = ix.Lookup(nil, v.Sender, now)
	}
	if err == nil && v.Domain.Text != "" {
		matches, err = ix.LookupDomain(matches, v.Domain, now)
	}
	if err == nil && v.Client.IsValid() {
		matches, err = ix.LookupClient(matches, v.Client, now)
	}
	return matches, err
}
