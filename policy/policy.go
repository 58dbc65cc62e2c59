// Package policy decides. Every front door asks it and only translates the
// answer into its own protocol; no other package knows what a match leads to.
//
// The rules are those of docs/lists.md, section 4: an allow entry that counts
// beats everything, between blocks the most specific one decides, and a list in
// shadow mode is reported and never counts. What goes wrong inside is Unknown:
// it is counted and logged, and it refuses nobody.
package policy

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/addr"
	"blockd/index"
)

// Kind is the verdict in one word, as `blockd check` and HTTP print it.
type Kind string

// The verdicts.
const (
	Blocked Kind = "blocked" // an entry that counts blocks, defers or discards
	Allowed Kind = "allowed" // an allow entry decides
	Clear   Kind = "clear"   // nothing that counts matches
	Unknown Kind = "unknown" // no sender, or the store cannot be read
)

// Settings of a Checker.
type Settings struct {
	RecipientsExempt []string // local-parts, compared without case, at any domain
	OnError          OnError  // what an unreadable store leads to; "" = accept
}

// OnError says what becomes of mail when the store cannot be read.
type OnError string

// The two choices.
const (
	AcceptOnError   OnError = "accept"
	TempfailOnError OnError = "tempfail"
)

// Checker decides about senders. It is safe for concurrent use and holds no
// generation: each verdict comes whole from the one that live returns.
type Checker struct {
	live   func() *index.Index
	exempt map[string]bool // canonical local-parts
	defers bool            // on an internal error
	*instruments
}

// New returns a Checker over live, which must never return nil. Metrics go to
// reg, which can hold those of one Checker.
func New(live func() *index.Index, s Settings, log *slog.Logger, reg prometheus.Registerer) *Checker {
	return &Checker{
		live:        live,
		exempt:      exemptLocals(s.RecipientsExempt),
		defers:      s.OnError == TempfailOnError,
		instruments: newInstruments(log, reg),
	}
}

// Pin returns a Checker like c whose verdicts all come from the generation that
// serves now: the answers to one question about many senders belong together.
// It keeps that generation in memory, so it is for one request.
func (c *Checker) Pin() *Checker {
	pinned, ix := *c, c.live()
	pinned.live = func() *index.Index { return ix }
	return &pinned
}

// Generation names the generation that the next verdict comes from.
func (c *Checker) Generation() string { return c.live().Generation() }

// Sender decides about one reverse-path, given as text with or without angle
// brackets. It never fails: what goes wrong is Unknown, counted and logged.
//
// It allocates nothing for a clear sender that is written in canonical form.
func (c *Checker) Sender(reversePath string) (v Verdict) {
	v = Verdict{Kind: Unknown, Decider: -1, Shadow: -1}
	defer func() {
		if p := recover(); p != nil {
			// A defect of ours must cost neither the session nor the sender.
			v = Verdict{Kind: Unknown, Decider: -1, Shadow: -1, Generation: v.Generation,
				Err: fmt.Errorf("panic in the look-up: %v", p)}
			c.failed(inPanic, v.Err, slog.String("stack", string(debug.Stack())))
		}
		c.count(&v)
	}()
	ix := c.live() // once: the whole verdict comes from one generation
	v.Generation = ix.Generation()
	sender, err := addr.Parse(reversePath)
	if err != nil {
		v.Err = err // odd is not the same as listed, nor is it a fault of ours
		return v
	}
	v.Sender = sender
	if sender.Null() {
		v.Kind = Clear // bounces must get through: RFC 5321, section 4.5.5
		return v
	}
	matches, err := ix.Lookup(nil, sender, time.Now())
	if err != nil {
		v.Err = err // a failing disk blocks nobody
		c.failed(inStore, err)
		return v
	}
	v.Matches, v.Lists = matches, ix.Lists()
	v.decide()
	return v
}

// Internal reports whether v is Unknown for a fault of ours: an unreadable
// store or a defect, and not a text that is no sender.
func (v Verdict) Internal() bool {
	return v.Kind == Unknown && !errors.As(v.Err, new(*addr.Error))
}
