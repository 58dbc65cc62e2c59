package policy

import (
	"math/rand/v2"
	"net/netip"
	"strings"
)

// maxReply bounds a reply line, without CRLF: it fits a terminal and a log, and
// stays far below the 512 octets of RFC 5321, section 4.5.3.1.5.
const maxReply = 120

// listRoom is what a list's name may always have of a reply, whatever the
// sender's length. Names of up to 64 octets are legal; those in use are short.
const listRoom = 20

// reply makes the reply texts of docs/smtp.md for an entry of list. A client
// reads there what it said itself, the list's name and a reference, and nothing
// of the entry: who is refused need not learn how the list is written.
func (v *Verdict) reply(o Outcome, list, ref string) string {
	client := v.aboutClient(v.Decider)
	switch {
	case client && o == Refuse:
		return clientReply("550 5.7.1 Client address [", v.Client, "] rejected: listed in ", list, ref)
	case client:
		return clientReply("451 4.7.1 Client address [", v.Client, "] deferred: listed in ", list, ref)
	case o == Refuse:
		return senderReply("550 5.7.1 <", v.Sender.String(), ">: "+v.Source.subject()+" address rejected: listed in ", list, ref)
	}
	return senderReply("451 4.7.1 <", v.Sender.String(), ">: "+v.Source.subject()+" address deferred: listed in ", list, ref)
}

// replyUnchecked is the reply where the store could not be read.
func (v *Verdict) replyUnchecked(ref string) string {
	const middle = "not checked: try again later"
	if v.Sender.Null() && v.Client.IsValid() {
		return clientReply("451 4.3.0 Client address [", v.Client, "] "+middle, "", ref)
	}
	return senderReply("451 4.3.0 <", v.Sender.String(), ">: "+v.Source.subject()+" address "+middle, "", ref)
}

// replyUnsure is the reply where DNS did not say whether an allow entry counts.
func (v *Verdict) replyUnsure(ref string) string {
	return senderReply("451 4.4.3 <", v.Sender.String(), ">: "+v.Source.subject()+" address not verified: try again later", "", ref)
}

// tag is the text of a header field about a message that list has a match for.
func tag(list, ref string) string {
	word := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune(`"(),;<=>[\]`, r) {
			return '?'
		}
		return r
	}, list)
	return "list=" + word + " ref=" + ref
}

// clientReply leaves the address whole, which has at most 39 octets: the list's
// name then has at least 16.
func clientReply(head string, client netip.Addr, middle, list, ref string) string {
	head, tail := head+client.String()+middle, " (ref "+ref+")"
	return head + shorten(printable(list), maxReply-len(head)-len(tail)) + tail
}

// senderReply joins the parts to a line of at most maxReply printable octets. The
// sender is shortened first, then the list's name.
func senderReply(head, sender, middle, list, ref string) string {
	tail := " (ref " + ref + ")"
	room := maxReply - len(head) - len(middle) - len(tail)
	sender, list = printable(sender), printable(list)
	list = shorten(list, max(listRoom, room-len(sender)))
	sender = shorten(sender, room-len(list))
	return head + sender + middle + list + tail
}

// printable replaces what is no printable ASCII by "?", and so the angle
// brackets of a quoted local-part: the first ">" of a reply ends the sender.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '<' || r == '>' {
			return '?'
		}
		return r
	}, text)
}

// shorten cuts the middle out of a text of more than most octets. It keeps more
// of the end, where the domain stands, and the three dots in a row say that this
// is no address: a dot-atom cannot have them.
func shorten(text string, most int) string {
	const gap = "..."
	if len(text) <= most {
		return text
	}
	kept := most - len(gap)
	return text[:kept/3] + gap + text[len(text)-(kept-kept/3):]
}

// refLength is the length of a reference: ten digits are 50 random bits. Of a
// million decisions, a day of a large site, two share one with a chance of 1 in
// 2,000, and the log line's time tells those apart.
const refLength = 10

// newRef draws a reference in Crockford's base 32, which has no letter that is
// misread on the telephone. The generator is the runtime's, seeded by the system.
func newRef() string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	var ref [refLength]byte
	bits := rand.Uint64()
	for i := range ref {
		ref[i] = digits[bits&31]
		bits >>= 5
	}
	return string(ref[:])
}
