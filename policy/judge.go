package policy

import (
	"time"

	"blockd/index"
	"blockd/mail/addr"
	"blockd/policy/verdict"
	"blockd/records/history"
)

// Judge returns a function that says what a generation makes of a mail of the past, for
// its recipient: whether it blocks it, and by which entry of which list it decides; ok is
// false where none does. It counts and logs nothing. What cannot be looked up is decided
// by none, and proofs of allow entries are not known any more.
func (s Settings) Judge() func(ix *index.Index, past *history.Refusal) (m index.Match, blocked, ok bool) {
	c := &checks{rules: s.Lists, policies: newPolicyTable(s.Policies, s.Lists), allows: requirementsOf(s.Lists, s.Auth), narrow: narrowed(s.Lists)}
	return func(ix *index.Index, past *history.Refusal) (m index.Match, blocked, ok bool) {
		v := verdict.New(nil)
		v.Requirements, v.Client = c.allows, past.Client.WithZone("").Unmap()
		v.Source = verdict.SourceOf(past.Source)
		v.Sender, _ = addr.Parse(past.Sender)
		matches, err := lookup(&v, ix, time.Now())
		if err != nil {
			return m, false, false
		}
		v.Lists = ix.Lists()
		v.Matches = c.asked(matches, v.Lists, v.Source)
		v.Decide(c.policies.of(past.Recipient))
		if v.Decider < 0 {
			return m, false, false
		}
		return v.Matches[v.Decider], v.Kind == verdict.Blocked, true
	}
}
