package policy

import (
	"time"

	"blockd/addr"
	"blockd/index"
)

// Blocks says which entry of ix refuses a sender of an unknown client, if any
// does: as a Checker over ix would, but for one recipient's policies, and without
// counting or logging. It is for who wants to know what a generation would do
// before it serves. What goes wrong is no refusal.
func Blocks(ix *index.Index, sender addr.Addr) (index.Match, bool) {
	v := unknown(nil)
	v.Sender = sender
	matches, err := v.lookup(ix, time.Now())
	if err != nil {
		return index.Match{}, false
	}
	v.Matches, v.Lists = matches, ix.Lists()
	if v.decide(nil); v.Kind != Blocked {
		return index.Match{}, false
	}
	return v.Matches[v.Decider], true
}
