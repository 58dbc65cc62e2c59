package policy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"time"

	"blockd/addr"
	"blockd/index"
	"blockd/live"
)

// subject is what a question is about.
type subject uint8

const (
	anEnvelope subject = iota // text is a reverse-path
	aClient                   // there is no text
	aDomain                   // text is a domain
	aField                    // text is an address of a header field, which source names
)

// question is what a Checker can be asked.
type question struct {
	about  subject
	client netip.Addr // zero = unknown
	source source
	text   string
	apart  bool         // of a Batch: it is not asked with the others
	index  *index.Index // that answers; nil = the one that serves
}

// Envelope decides about one reverse-path, given as text with or without angle
// brackets, that came from client. A client that is not valid is unknown: no
// entry for client addresses covers it. The null sender is in no list, and the
// client of a bounce is judged as any other. It never fails: what goes wrong is
// Unknown, counted and logged.
//
// Of text that is no sender, that is judged which can be read of it, by addr.Readings:
// an address, or a domain and its parents; and the client. Without an entry for
// any of them the verdict is Unknown.
//
// It allocates nothing for a clear sender that is written in canonical form.
func (c *Checker) Envelope(client netip.Addr, reversePath string) Verdict {
	return c.ask(question{about: anEnvelope, client: client, text: reversePath})
}

// Client decides about a client before it has named a sender, by the entries for
// client addresses alone. A sender's own allow entry cannot help there: refuse at
// RCPT, by Envelope, where it should.
func (c *Checker) Client(client netip.Addr) Verdict {
	return c.ask(question{about: aClient, client: client})
}

// Domain decides what every sender at domain has in common: entries for the
// domain itself and for those above it. Entries for single addresses,
// local-parts and patterns cover some senders there and not others, so they have
// no part in it. It is for people who ask; no front door decides by it.
func (c *Checker) Domain(domain string) Verdict {
	return c.ask(question{about: aDomain, text: domain})
}

func (c *Checker) ask(q question) (v Verdict) {
	v = unknown(nil)
	v.allows = c.allows
	now := time.Now()
	defer func() {
		if p := recover(); p != nil {
			// A defect of ours must cost neither the session nor the sender.
			generation := v.Generation
			v = unknown(fmt.Errorf("panic in the look-up: %v", p))
			v.Generation, v.allows = generation, c.allows
			c.failed(inPanic, v.Err, slog.String("stack", string(debug.Stack())))
		}
		c.count(&v, q.about, now)
	}()
	ix := q.index
	if ix == nil {
		ix = c.live() // once: the whole verdict comes from one generation
	}
	v.Generation = ix.Generation()
	var odd error // which is not the same as listed, nor a fault of ours
	readings := []addr.Reading(nil)
	switch q.about {
	case anEnvelope, aField:
		if v.Sender, odd = addr.Parse(q.text); strange(v.Sender, odd) {
			readings = addr.Readings(q.text)
		}
		if odd != nil || len(readings) > 0 && readings[0].Addr.Null() {
			v.Unread = q.text
		}
	case aDomain:
		v.Domain, odd = addr.DomainKey(q.text)
	}
	v.Client, v.Source = q.client.WithZone("").Unmap(), q.source
	err := c.match(&v, ix, readings, now)
	if err != nil {
		v.Err = err // a failing disk blocks nobody
		c.failed(inStore, err)
		return v
	}
	v.Err = odd
	v.decide(nil)
	return v
}

// strange reports whether a text may have other readings than that of addr.Parse, which
// is given.
func strange(sender addr.Addr, err error) bool {
	return err != nil || sender.Domain() == "" && !sender.Null()
}

// match sets what v is about and the entries that cover it: the first reading that a
// list has an entry for, or else the first.
func (c *Checker) match(v *Verdict, ix *index.Index, readings []addr.Reading, now time.Time) error {
	for i := range max(1, len(readings)) {
		if readings != nil {
			v.Sender, v.Domain = readings[i].Addr, readings[i].Domain
		}
		matches, err := v.lookup(ix, now)
		if err != nil {
			return err
		}
		matches, v.Lists = c.entries.Amend(matches, ix, live.Question{Sender: v.Sender, Domain: v.Domain, Client: v.Client}, now)
		if v.Matches = c.asked(matches, v.Lists, v.Source); len(v.Matches) > 0 && !v.aboutClient(0) {
			return nil
		}
	}
	if len(readings) > 1 { // the same entries for the client, if any
		v.Sender, v.Domain = readings[0].Addr, readings[0].Domain
	}
	return nil
}

// unknown is the verdict as long as nothing is known.
func unknown(err error) Verdict { return Verdict{Kind: Unknown, Decider: -1, Shadow: -1, Err: err} }

// lookup returns the entries that cover what v is about. Those for senders are
// all more specific than those for clients.
func (v *Verdict) lookup(ix *index.Index, now time.Time) (matches []index.Match, err error) {
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

// Internal reports whether v is Unknown for a fault of ours: an unreadable
// store or a defect, and not a text that is no sender.
func (v Verdict) Internal() bool {
	return v.Kind == Unknown && !errors.As(v.Err, new(*addr.Error))
}
