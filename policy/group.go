package policy

import "blockd/policy/verdict"

// group says which recipients share every decision about a header: those with
// equal groups. A message has one header for all its recipients. The zero group is
// nobody's.
type group int

// The groups. After them come those of policies, each that of the first alike.
//
// No header decides for exempt recipients, for those of whose lists none has header
// sources, and for those whose envelope an exception frees from all lists.
const (
	unread  group = 1 + iota // no header decides
	allRead                  // all lists count
)

// group returns the group of a recipient; envelope are the verdicts of its senders.
func (c *checks) group(recipient string, envelope ...verdict.Verdict) group {
	if c.isExempt(recipient) {
		return unread
	}
	for _, v := range envelope {
		if v := c.forRecipient(v, recipient); v.Frees() {
			return unread
		}
	}
	return c.policies.group(recipient)
}
