package policy

// Stake is what a recipient's answer depends on where only the message can tell it.
// Recipients with equal Stakes, of one verdict, have the same answer, whatever the
// message proves. The zero Stake is that of all others: their answer is known.
type Stake struct {
	wants     Proof
	unsure    Proof           // of the proofs known before the message
	blockers  [lateStates]int // the entry that blocks, by its place in Matches, from 1, for each set of late proofs; 0: none
	Otherwise Outcome         // what becomes of a message that proves nothing
}

// lateStates is how many sets of lateProofs there are.
const lateStates = 1 << 2

// lateState is one of them.
func lateState(n int) (found Proof) {
	if n&1 != 0 {
		found |= DKIMProof
	}
	if n&2 != 0 {
		found |= Alignment
	}
	return found
}

// Stake returns what the recipient of an envelope with verdict v has at stake. Ask it
// behind ProveOrigin. Nothing is counted or remembered.
func (c *Checker) Stake(v Verdict, recipient string) Stake {
	if len(v.Matches) == 0 || !c.Awaits(v, recipient) {
		return Stake{}
	}
	only := c.policies.of(recipient)
	v = c.For(v, recipient)
	s := Stake{wants: v.Wants & lateProofs, unsure: v.Unsure, Otherwise: c.consequence(&c.as, &v).Outcome}
	for n := range s.blockers {
		if kind, decider := v.judge(only, v.found()|lateState(n)); kind == Blocked {
			s.blockers[n] = decider + 1
		}
	}
	return s
}

// Asks reports whether ProveOrigin may have to wait for DNS.
func (c *Checker) Asks(v Verdict, recipient string) bool {
	return c.resolver != nil && c.wants(v, recipient)&SPFProof != 0
}
