package policy

import (
	"time"

	"blockd/addr"
	"blockd/index"
)

// Blocks says which entry of ix refuses a sender of an unknown client, if any
// does: as a Checker over ix with these Settings would, but for one recipient's
// policies, and without counting or logging. It is for who wants to know what a
// generation would do before it serves. What goes wrong is no refusal.
func (s Settings) Blocks(ix *index.Index, sender addr.Addr) (index.Match, bool) {
	v := unknown(nil)
	v.Sender, v.allows = sender, newAllowRules(s.Lists, s.Auth)
	matches, err := v.lookup(ix, time.Now())
	if err != nil {
		return index.Match{}, false
	}
	v.Lists = ix.Lists()
	v.Matches = asked(s.Lists, matches, v.Lists, EnvelopeSource)
	if v.decide(nil); v.Kind != Blocked {
		return index.Match{}, false
	}
	return v.Matches[v.Decider], true
}
