package policy

import (
	"net/netip"
	"slices"
	"time"

	"blockd/index"
	"blockd/mail/addr"
	"blockd/policy/verdict"
)

// Blocks says which entries of ix refuse a sender that comes from client: as a Checker
// over ix with these Settings would, but for one recipient's policies, and without
// counting or logging. Each of them would do so without the others, the one that decides
// comes first. It is for a process that wants to know what a generation would do before it
// serves. What goes wrong is no refusal.
func (s Settings) Blocks(ix *index.Index, sender addr.Addr, client netip.Addr) (blocks []index.Match) {
	v := verdict.New(nil)
	v.Sender, v.Client, v.Requirements = sender, client, requirementsOf(s.Lists, s.Auth)
	matches, err := lookup(&v, ix, time.Now())
	if err != nil {
		return nil
	}
	v.Lists = ix.Lists()
	v.Matches = asked(s.Lists, matches, v.Lists, verdict.EnvelopeSource)
	for v.Decide(nil); v.Kind == verdict.Blocked; v.Decide(nil) {
		blocks = append(blocks, v.Matches[v.Decider])
		v.Matches = slices.Delete(v.Matches, v.Decider, v.Decider+1)
	}
	return blocks
}
