package policy

import (
	"net/netip"
	"slices"
	"time"

	"blockd/addr"
	"blockd/index"
	"blockd/live"
)

// Batch collects questions for Ask, which is several times as fast with a few
// hundred of them as one by one. It holds the verdicts, and the memory of their
// Matches, until Reset. The zero Batch is ready. It is for one goroutine at a time.
type Batch struct {
	questions []question
	senders   []addr.Addr // of the questions; null where there is none to look up
	lookups   index.Batch
	verdicts  []Verdict
}

// Envelope adds the question of Checker.Envelope.
func (b *Batch) Envelope(client netip.Addr, reversePath string) {
	b.questions = append(b.questions, question{about: anEnvelope, client: client, text: reversePath})
}

// Client adds the question of Checker.Client.
func (b *Batch) Client(client netip.Addr) {
	b.questions = append(b.questions, question{about: aClient, client: client})
}

// Domain adds the question of Checker.Domain.
func (b *Batch) Domain(domain string) {
	b.questions = append(b.questions, question{about: aDomain, text: domain})
}

// Reset takes all questions out.
func (b *Batch) Reset() { b.questions = b.questions[:0] }

// Ask answers the questions of b in order, each as the method of its name does,
// and all of them by one generation. It allocates nothing for clear senders in
// canonical form once b has the room.
func (c *Checker) Ask(b *Batch) (verdicts []Verdict) {
	ix := c.live() // once
	defer func() {
		if recover() != nil {
			// A defect of ours costs the one sender that meets it alone, too.
			verdicts = make([]Verdict, len(b.questions))
			for i, q := range b.questions {
				verdicts[i] = c.pinned(ix).ask(q)
			}
		}
	}()
	now := time.Now()
	b.senders, b.verdicts = b.senders[:0], slices.Grow(b.verdicts[:0], len(b.questions))[:len(b.questions)]
	for i := range b.questions {
		v, q := &b.verdicts[i], &b.questions[i]
		*v = unknown(nil)
		v.allows = c.allows
		if q.about == anEnvelope {
			v.Generation, v.Client = ix.Generation(), q.client.WithZone("").Unmap()
			v.Sender, v.Err = addr.Parse(q.text)
		}
		if q.apart = q.about != anEnvelope || strange(v.Sender, v.Err); q.apart {
			v.Sender = addr.Addr{}
		}
		b.senders = append(b.senders, v.Sender)
	}
	ix.LookupBatch(&b.lookups, b.senders, now)
	for i := range b.questions {
		v, q := &b.verdicts[i], &b.questions[i]
		if q.apart {
			*v = c.pinned(ix).ask(*q) // people ask such, one at a time, and mail seldom has them
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
		v.Matches = c.asked(matches, v.Lists, envelopeSource)
		v.decide(nil)
	}
	c.countEnvelopes(b, now)
	return b.verdicts
}

// pinned is Pin for a generation that is at hand.
func (c *Checker) pinned(ix *index.Index) *Checker {
	p := *c
	p.live = func() *index.Index { return ix }
	return &p
}

// countEnvelopes counts those verdicts of b that ask has not counted.
func (in *instruments) countEnvelopes(b *Batch, now time.Time) {
	kinds := [...]Kind{Blocked, Allowed, Clear, Unknown}
	var n [len(kinds)]int
	for i := range b.verdicts {
		if b.questions[i].apart {
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
