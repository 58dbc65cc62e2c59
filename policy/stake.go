package policy

// Stake is what a recipient's answer hangs on where only the message can tell it.
// Recipients with equal Stakes, of one verdict, have the same answer, whatever the
// message proves. The zero Stake is that of all others: their answer is known.
type Stake struct {
	wants     Proof
	unsure    Proof   // of the proofs known before the message
	blocker   int     // the entry that blocks, by its place in Matches, from 1
	Otherwise Outcome // what becomes of a message that proves nothing
}

// Stake returns what the recipient of an envelope with verdict v has at stake. Ask it
// behind ProveOrigin. Nothing is counted or remembered.
func (c *Checker) Stake(v Verdict, recipient string) Stake {
	if len(v.Matches) == 0 || !c.Awaits(v, recipient) {
		return Stake{}
	}
	v = c.For(v, recipient)
	return Stake{wants: v.Wants & lateProofs, unsure: v.Unsure, blocker: v.Decider + 1, Otherwise: c.consequence(&v).Outcome}
}

// Asks reports whether ProveOrigin may have to wait for DNS.
func (c *Checker) Asks(v Verdict, recipient string) bool {
	return c.resolver != nil && c.wants(v, recipient)&SPFProof != 0
}
