package policy

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"blockd/index"
	"blockd/index/live"
	"blockd/mail/addr"
	"blockd/policy/ask"
	"blockd/policy/verdict"
)

// Batch has the answers to questions that are asked together, and the memory of their
// Matches, until it is used again. The zero Batch is ready. It is for one goroutine at a
// time.
type Batch struct {
	Generation string // of all answers

	// Uncounted questions are no hits of lists, and in no metric of verdicts. It is the caller's.
	Uncounted bool

	// Private explanations are for somebody who may know whom users write to. It is the caller's.
	Private bool

	checker  *checks
	index    *index.Index
	senders  []addr.Addr // of the questions; null where there is none to look up
	apart    []bool      // the question is not asked with the others
	lookups  index.Batch
	stores   []*ask.Inquiry // of the questions; nil where no store is asked
	verdicts []verdict.Verdict
}

// Index is the generation that has answered; nil after Reset, and where a defect of ours has lost it.
func (b *Batch) Index() *index.Index { return b.index }

// Reset lets the generation go that has answered last.
func (b *Batch) Reset() { b.index = nil }

// answerAll is Checker.AskAll.
func (c *checks) answerAll(b *Batch, questions []Question) (verdicts []verdict.Verdict) {
	var ix *index.Index
	b.Generation, b.checker, b.index = "", c, nil
	defer func() {
		if p := recover(); p != nil {
			// A defect of ours costs the one sender that meets it alone, too.
			c.failed(inPanic, fmt.Errorf("panic in the look-up of many: %v", p), slog.String("stack", string(debug.Stack())))
			verdicts = make([]verdict.Verdict, len(questions))
			for i, q := range questions {
				verdicts[i] = c.ask(question{Question: q, index: ix, uncounted: b.Uncounted})
				c.to(&verdicts[i], ix, q.Recipient)
			}
		}
	}()
	ix = c.live() // once
	b.index = ix
	now := time.Now()
	paused := c.paused(now)
	b.Generation = ix.Generation()
	b.senders, b.apart, b.stores = b.senders[:0], b.apart[:0], b.stores[:0]
	b.verdicts = slices.Grow(b.verdicts[:0], len(questions))[:len(questions)]
	for i := range questions {
		v, q := &b.verdicts[i], &questions[i]
		*v = verdict.New(nil)
		v.Requirements, v.Paused, v.NoOverride, v.Shares = c.allows, paused, c.fixed, c.shares
		if q.About == AboutSender {
			v.Generation, v.Client = b.Generation, q.Client.WithZone("").Unmap()
			v.Sender, v.Err = addr.Parse(q.Text)
		}
		apart := q.About != AboutSender || strange(v.Sender, v.Err)
		if apart {
			v.Sender = addr.Addr{}
		}
		b.senders, b.apart = append(b.senders, v.Sender), append(b.apart, apart)
		b.stores = append(b.stores, c.stores.Begin(v.Sender, addr.Key{}, verdict.EnvelopeSource)) // which answer meanwhile
	}
	ix.LookupBatch(&b.lookups, b.senders, now)
	for i, q := range questions {
		v := &b.verdicts[i]
		if b.apart[i] {
			*v = c.ask(question{Question: q, index: ix, uncounted: b.Uncounted}) // people ask such, one at a time, and mail seldom has them
			continue
		}
		matches, err := b.lookups.Matches(i)
		if err == nil && v.Client.IsValid() {
			matches, err = ix.LookupClient(matches, v.Client, now)
		}
		if err != nil {
			v.Err = err // a failing disk blocks nobody
			c.failed(inStore, err)
			continue
		}
		matches, v.Lists = c.entries.Amend(matches, ix, live.Question{Sender: v.Sender, Client: v.Client}, now)
		v.Matches = c.asked(matches, v.Lists, verdict.EnvelopeSource)
		if b.stores[i] != nil {
			c.amend(context.Background(), v, b.stores[i], false, now)
		}
		v.Excusable = len(v.Matches) > 0 && c.excuses(v)
		v.Decide(q.Lists)
	}
	if !b.Uncounted {
		c.countSenders(b, now)
	}
	for i := range questions {
		c.to(&b.verdicts[i], ix, questions[i].Recipient)
	}
	return b.verdicts
}

// countSenders counts those verdicts of b that ask has not counted.
func (in *instruments) countSenders(b *Batch, now time.Time) {
	kinds := [...]verdict.Kind{verdict.Blocked, verdict.Allowed, verdict.Clear, verdict.Unknown}
	var n [len(kinds)]int
	for i := range b.verdicts {
		if b.apart[i] {
			continue
		}
		v := &b.verdicts[i]
		n[slices.Index(kinds[:], v.Kind)]++
		in.countMatches(v, now)
	}
	for i, k := range kinds {
		if n[i] > 0 { // one atomic addition for many senders
			in.verdicts[k].Add(float64(n[i]))
		}
	}
}
