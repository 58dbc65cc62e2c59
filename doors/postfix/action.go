package postfix

import (
	"strconv"

	"blockd/policy"
	"blockd/policy/reply"
)

// maxAnswer bounds a reply line of Postfix, without CRLF. Postfix cuts a longer one there,
// even within a word.
const maxAnswer = 510

// prefix is the longest text that Postfix puts before blockd's words, beside the codes and
// the refused name: "<…>: Recipient address rejected: ".
const prefix = len("550 5.7.1 <>: Recipient address rejected: ")

// space is the room for blockd's words in a reply with the longest of these names.
func space(names ...int) int {
	most := 0
	for _, n := range names {
		most = max(most, n)
	}
	return max(maxAnswer-prefix-most, 100)
}

// action returns a decision as an action of access(5), with at most space octets of text.
// Postfix puts "<sender>: Sender address rejected: " before the text, so the text leaves that
// out.
//
// A deferral is DEFER_IF_PERMIT, which Postfix answers with 450: a client that a later
// restriction refuses is then refused at once, and need not come again. An entry that names a
// code gets that code. An entry with a text and no code gets the code of Postfix's own tables.
func action(d *policy.Decision, space int) string {
	switch d.Outcome {
	case policy.Refuse:
		if d.Reply.Bare {
			return "REJECT " + words(&d.Reply, space)
		}
		return strconv.Itoa(d.Reply.Code) + " " + words(&d.Reply, space)
	case policy.Defer:
		if d.Reply.Named {
			return strconv.Itoa(d.Reply.Code) + " " + words(&d.Reply, space)
		}
		return "DEFER_IF_PERMIT " + words(&d.Reply, space)
	case policy.Mark:
		return "PREPEND X-Blockd: " + d.Tag.String()
	case policy.Quarantine:
		return "HOLD " + d.Reply.Words
	case policy.Apart:
		return sendAgain
	}
	return dunno
}

// words are the text of an action that refuses.
func words(r *reply.Reply, space int) string { return r.Enhanced + " " + r.AfterSubject(space) }

// sendAgain is the answer to a recipient that needs another treatment of the message than
// the recipients before it. The client sends to it again, by itself.
const sendAgain = "452 4.5.3 send this recipient in a transaction of its own"

// dunno means that blockd has no objection: other restrictions decide.
const dunno = "DUNNO"

// space is the room for blockd's words in the reply to a request. Which of its names Postfix
// puts first depends on the list of restrictions that asks.
func (r *policyRequest) space() int {
	return space(len(r.sender), len(r.recipient), len(r.helo), len(r.name)+len(r.client)+len("[]"))
}
