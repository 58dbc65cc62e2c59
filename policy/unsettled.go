package policy

import "blockd/policy/verdict"

// unsettled has the facts that only the message can settle for a recipient. Recipients for
// whom the same is unsettled, by one verdict, have the same answer, whatever the message
// proves. The zero value is that of all others: their answer is known.
type unsettled struct {
	wants     verdict.Proof
	unsure    verdict.Proof     // of the proofs known before the message
	short     verdict.Proof     // of them
	blockers  [lateStates]int32 // the entry that blocks, by its place in Matches, from 1, for each set of late proofs; 0: none
	Otherwise Outcome           // what becomes of a message that proves nothing
}

// lateStates is how many sets of verdict.LateProofs there are.
const lateStates = 1 << 2

// lateState is one of them.
func lateState(n int) (found verdict.Proof) {
	if n&1 != 0 {
		found |= verdict.DKIMProof
	}
	if n&2 != 0 {
		found |= verdict.AlignmentProof
	}
	return found
}

// unsettled is what the message is to settle for a recipient of an envelope with verdict v,
// after proveOrigin. Nothing is counted or remembered.
func (c *checks) unsettled(door *Door, v verdict.Verdict, recipient string) unsettled {
	if len(v.Matches) == 0 || !c.awaits(v, recipient) {
		return unsettled{}
	}
	only := c.policies.of(recipient)
	v = c.forRecipient(v, recipient)
	s := unsettled{wants: v.Wants & verdict.LateProofs, unsure: v.Unsure, short: v.Short, Otherwise: c.consequence(door, &v).Outcome}
	for n := range s.blockers {
		if kind, decider := v.Judge(only, v.Proved()|lateState(n)); kind == verdict.Blocked {
			s.blockers[n] = int32(decider) + 1
		}
	}
	return s
}

// asks reports whether proveOrigin may have to wait for DNS.
func (c *checks) asks(v verdict.Verdict, recipient string) bool {
	return c.resolver != nil && c.wants(v, recipient)&verdict.SPFProof != 0
}
