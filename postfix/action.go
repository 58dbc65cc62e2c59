package postfix

import (
	"strconv"

	"blockd/policy"
)

// maxAnswer is what a reply line of Postfix has at most, without CRLF: there it is cut,
// wherever that is.
const maxAnswer = 510

// prefix is the longest that Postfix puts in front of our words beside the codes and the
// name of the refused: "<…>: Recipient address rejected: ".
const prefix = len("550 5.7.1 <>: Recipient address rejected: ")

// space is what our words may have of a reply in which the longest of these names stands.
func space(names ...int) int {
	most := 0
	for _, n := range names {
		most = max(most, n)
	}
	return max(maxAnswer-prefix-most, 100)
}

// action is a decision as access(5) has it, with words of at most so many octets. Of text
// Postfix puts "<sender>: Sender address rejected: " in front, so that it begins behind
// that.
//
// Defer is DEFER_IF_PERMIT: who would be refused by a later restriction is refused
// at once, and need not come again to hear so. Postfix makes a 450 of it. An entry that
// names a code has it, and one that has a text without a code has that of Postfix's
// tables, which is Postfix's to say.
func action(d policy.Decision, space int) string {
	r := d.Reply
	words := r.Enhanced + " " + r.Behind(space)
	switch d.Outcome {
	case policy.Refuse:
		if r.Bare {
			return "REJECT " + words
		}
		return strconv.Itoa(r.Code) + " " + words
	case policy.Defer:
		if r.Named {
			return strconv.Itoa(r.Code) + " " + words
		}
		return "DEFER_IF_PERMIT " + words
	case policy.Mark:
		return "PREPEND X-Blockd: " + d.Tag.String()
	case policy.Quarantine:
		return "HOLD " + d.Because()
	case policy.Apart:
		return sendAgain
	}
	return dunno
}

// sendAgain is for a recipient whose message is to be treated in another way than
// that of the recipients before. The client sends it again, by itself.
const sendAgain = "452 4.5.3 send this recipient in a transaction of its own"

// dunno is that we have nothing to say: other restrictions decide.
const dunno = "DUNNO"

// space is what our words may have of the reply to a request: which of its names Postfix
// puts in front depends on the restrictions that we stand in.
func (r *policyRequest) space() int {
	return space(len(r.sender), len(r.recipient), len(r.helo), len(r.name)+len(r.client)+len("[]"))
}
