package postfix

import (
	"strings"

	"blockd/lists"
	"blockd/policy"
)

// action is a decision as access(5) has it. Of text Postfix puts "<sender>: Sender
// address rejected: " in front, so that it begins behind that.
//
// Defer is DEFER_IF_PERMIT: who would be refused by a later restriction is refused
// at once, and need not come again to hear so. Postfix makes a 450 of it.
func action(v policy.Verdict, d policy.Decision) string {
	switch d.Outcome {
	case policy.Refuse:
		return "550 5.7.1 " + because(v, d)
	case policy.Defer:
		if v.Internal() {
			return "DEFER_IF_PERMIT 4.3.0 " + notChecked(d)
		}
		if strings.HasPrefix(d.Reply, "451 4.4.3 ") { // what DNS did not tell
			return "DEFER_IF_PERMIT 4.4.3 not verified: try again later (ref " + d.Ref + ")"
		}
		return "DEFER_IF_PERMIT 4.7.1 " + because(v, d)
	case policy.Tag:
		return "PREPEND X-Blockd: " + d.Tag
	case policy.Quarantine:
		return "HOLD " + because(v, d)
	}
	return dunno
}

// dunno is that we have nothing to say: other restrictions decide.
const dunno = "DUNNO"

// notChecked is the text where the store could not be read.
func notChecked(d policy.Decision) string { return "not checked: try again later (ref " + d.Ref + ")" }

// because names the list that decided, and the reference of the log line.
func because(v policy.Verdict, d policy.Decision) string {
	text := "listed in " + printable(v.ListName(v.Decider)) + " (ref " + d.Ref + ")"
	if kind := v.Matches[v.Decider].Kind; kind == lists.IP || kind == lists.CIDR {
		return "client address [" + v.Client.String() + "] " + text
	}
	return text
}

// printable keeps the octets of a list's name from ending a line. Names in use
// have none that it replaces.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

// treatment is what an action does to a message rather than to a recipient; ""
// for nothing. Two recipients can share a message if theirs are equal.
func treatment(v policy.Verdict, d policy.Decision) string {
	switch d.Outcome {
	case policy.Tag:
		return "tag " + v.ListName(v.Decider)
	case policy.Quarantine:
		return "hold"
	}
	return ""
}
