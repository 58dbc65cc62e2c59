package policy

import (
	"strings"
	"sync/atomic"
	"time"

	"blockd/policy/verdict"
	"blockd/records/history"
)

// Told remembers what programs were told at a door that decides nothing about mail, such
// as DNS. It is safe for concurrent use.
type Told struct {
	checker *Checker
	door    string
	second  atomic.Int64 // seconds since 1970, shifted left by 16; below that: answers remembered in it
}

// toldPerSecond bounds the history of one door: such doors give 100,000 answers a second,
// and ten records a second are 2 KB. In a full history all of them together have the room of
// one client network, so that they push out no decision about mail.
const toldPerSecond = 10

// Told makes the memory of one door, by its name in the history.
func (c *Checker) Told(door string) *Told { return &Told{checker: c, door: door} }

// Listed remembers v, of which a program was told that a list has it. It keeps the first
// ten of a second and leaves the others out.
func (t *Told) Listed(v *verdict.Verdict) { t.Referring(v, "") }

// Referring is Listed for an answer that names a reference; "" = none. It reports whether v
// is remembered. Only then can the reference be found.
func (t *Told) Referring(v *verdict.Verdict, ref string) bool {
	c := t.checker.now.Load()
	if c.history == nil && c.decided == nil {
		return false
	}
	now := time.Now()
	if !t.admits(now.Unix()) {
		return false
	}
	r := history.Record{Time: now, Door: t.door, Outcome: history.Listed, Verdict: string(v.Kind),
		Client: v.Client, Sender: v.Sender.String(), Generation: v.Generation, Ref: ref}
	if r.Sender == "" {
		r.Sender = v.Domain.Text // of a question about a domain
	}
	name(&r, v)
	// The question's text may lie in a buffer that the door uses again.
	r.Sender, r.Entry = strings.Clone(r.Sender), strings.Clone(r.Entry)
	c.history.Add(r)
	if c.decided != nil {
		c.decided(r)
	}
	return true
}

// admits reports whether one more may be remembered in the given second.
func (t *Told) admits(second int64) bool {
	for {
		old := t.second.Load()
		n := old & 0xffff
		if old>>16 != second {
			n = 0
		}
		if n >= toldPerSecond {
			return false
		}
		if t.second.CompareAndSwap(old, second<<16|(n+1)) {
			return true
		}
	}
}
