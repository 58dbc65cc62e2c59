package policy

import (
	"cmp"
	"strconv"
	"strings"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy/reply"
	"blockd/policy/verdict"
)

// maxReply bounds a reply in the standard words, without the contact behind it: it fits
// a terminal and a log.
const maxReply = 120

// listRoom is what a list's name may always have of a reply, whatever the
// sender's length. Names of up to 64 octets are legal; those in use are short.
const listRoom = 20

// maxSender is what a legal sender has (RFC 5321, section 4.5.3.1.3).
const maxSender = 254

// standard is the reply in the words of docs/smtp.md about an entry of list. A client
// reads there what it said itself, the list's name and a reference, and nothing
// of the entry: who is refused need not learn how the list is written.
func standard(v *verdict.Verdict, o Outcome, list, ref string) reply.Reply {
	r, verb := usual(o), "rejected"
	if o == Defer {
		verb = "deferred"
	}
	r.Words = because(v, ref)
	if v.AboutClient(v.Decider) {
		r.Subject = "Client address [" + v.Client.String() + "] " + verb + ": "
		list = shorten(printable(list), maxReply-len("550 5.7.1 ")-len(r.Subject)-len(listed)-len(tail(ref)))
		r.Text = listed + list + tail(ref)
		return r
	}
	sender, list := fit(shown(v), list, len("550 5.7.1 <>: ")+len(subjectOf(v.Source))+len(" address : ")+len(verb)+len(listed)+len(tail(ref)))
	r.Subject, r.Text = about(v, sender)+verb+": ", listed+list+tail(ref)
	return r
}

const listed = "listed in "

// personal is the reply about an entry of the recipient's owner, or about the recipient: it names no list, and nothing of
// the entry.
func personal(v *verdict.Verdict, o Outcome, ref string) reply.Reply {
	r := usual(o)
	if v.Matches[v.Decider].Kind == lists.Recipient {
		r.Text = "recipient address does not accept mail" + tail(ref)
	} else {
		const before = "recipient does not accept mail from "
		sender, _ := fit(shown(v), "", len("550 5.7.1 ")+len(before)+len(tail(ref)))
		r.Text = before + sender + tail(ref)
	}
	r.Words = r.Text
	return r
}

// because names the list that decided, and a reference, for a mail server that puts a
// subject of its own in front.
func because(v *verdict.Verdict, ref string) string {
	if v.AboutRecipient(v.Decider) {
		return personal(v, Quarantine, ref).Text
	}
	text := listed + printable(v.ListName(v.Decider)) + tail(ref)
	if v.AboutClient(v.Decider) {
		return "client address [" + v.Client.String() + "] " + text
	}
	return text
}

// about begins a sentence about the sender.
func about(v *verdict.Verdict, sender string) string {
	return "<" + sender + ">: " + subjectOf(v.Source) + " address "
}

// subjectOf is how a refusal begins to speak of an address.
func subjectOf(s verdict.Source) string {
	return [...]string{"Sender", "From", "Reply-To", "Return-Path"}[s]
}

// usual has the codes of an outcome.
func usual(o Outcome) reply.Reply {
	if o == Defer {
		return reply.Reply{Code: 451, Enhanced: "4.7.1"}
	}
	return reply.Reply{Code: 550, Enhanced: "5.7.1"}
}

// say gives r the codes of a, as far as it names some and they fit the outcome of r.
func say(r *reply.Reply, a lists.Answer) {
	class := r.Code / 100
	if a.Code/100 == class {
		r.Code, r.Named = a.Code, true
	}
	if a.Enhanced != "" {
		r.Enhanced = strconv.Itoa(class) + a.Enhanced[1:]
	}
}

// own is what the deciding entry itself says to the client, in the words of Postfix's
// access(5); ok is false if it says nothing.
func own(v *verdict.Verdict, o Outcome) (r reply.Reply, ok bool) {
	m, list := &v.Matches[v.Decider], &v.Lists[v.Matches[v.Decider].Row]
	if m.Reason == "" || m.Action == lists.Discard || m.Reason == list.Source.Settings.Reason || !lists.Answers(list.Summary.Format) {
		return r, false
	}
	a := lists.ParseAnswer(m.Reason)
	r = usual(o)
	say(&r, a)
	text := reply.ForClient(a.Text, v.Seen.UTF8)
	if text == "" {
		return r, false
	}
	r.Bare = a.Code == 0
	r.Text, r.Words = text, text
	if v.AboutClient(v.Decider) {
		r.Subject = "Client address [" + v.Client.String() + "] rejected: "
	} else {
		r.Subject = about(v, shorten(printable(shown(v)), maxSender)) + "rejected: "
	}
	return r, true
}

// words is the reply about the deciding entry: what the entry says, else what its list
// says, else what [refusal] says, else the standard words, and behind it where to ask.
func (c *checks) words(v *verdict.Verdict, o Outcome, list, ref string) reply.Reply {
	l, contact := c.rules[list], c.contactOf(list, ref)
	if v.AboutRecipient(v.Decider) && l.Text == "" {
		r := personal(v, o, ref)
		r.Contact = contact
		return r
	}
	r, ok := own(v, o)
	switch text := cmp.Or(l.Text, c.text); {
	case ok:
	case text != "":
		a := lists.ParseAnswer(text)
		r = usual(o)
		say(&r, a)
		r.Text = reply.ForClient(reply.Fill(a.Text, func(word string) (string, bool) {
			switch word {
			case "sender":
				return subjectName(v), true
			case "list":
				return list, true
			case "reason":
				return said(v, v.Decider), true
			case "ref":
				return ref, true
			case "contact":
				text := contact
				contact = "" // it need not stand there twice
				return text, true
			}
			return "", false
		}), v.Seen.UTF8)
		r.Words = r.Text
	}
	if r.Text == "" {
		codes := r
		r = standard(v, o, list, ref)
		if codes.Code != 0 { // of an entry or a list with codes and no text
			r.Code, r.Enhanced, r.Named = codes.Code, codes.Enhanced, codes.Named
		}
	}
	r.Contact = contact
	return r
}

// contactOf says where to ask about what a list has; "" where neither it nor [refusal] says so.
func (c *checks) contactOf(list, ref string) string {
	return reply.Contact(cmp.Or(c.rules[list].Contact, c.contact), list, ref)
}

// Sample is what the client of a listed sender reads because of a list, for people who
// set its text. ID stands for the reference.
func (s Settings) Sample(list string, sender addr.Addr) string {
	v := verdict.Verdict{Sender: sender, Matches: make([]index.Match, 1), Lists: []index.ListInfo{{Source: index.Source{List: list}}}}
	v.Matches[0].Kind = lists.Domain
	c := &checks{rules: s.Lists, contact: s.Contact, text: s.Text}
	o := onMatch(s.Lists[list].OnMatch)
	if o != Refuse && o != Defer {
		return ""
	}
	return c.words(&v, o, list, "ID").String()
}

// subjectName is whom the deciding entry is about.
func subjectName(v *verdict.Verdict) string {
	if v.AboutClient(v.Decider) {
		return v.Client.String()
	}
	return shorten(shown(v), maxSender)
}

// said is the text of Matches[i], without the codes that may stand in front of it.
func said(v *verdict.Verdict, i int) string {
	m := &v.Matches[i]
	if lists.Answers(v.Lists[m.Row].Summary.Format) {
		return lists.ParseAnswer(m.Reason).Text
	}
	return m.Reason
}

// unchecked is the reply where the store could not be read.
func unchecked(v *verdict.Verdict, ref string) reply.Reply {
	r := reply.Reply{Code: 451, Enhanced: "4.3.0", Text: "not checked: try again later" + tail(ref)}
	r.Words = r.Text
	if v.Sender.Null() && v.Client.IsValid() {
		r.Subject = "Client address [" + v.Client.String() + "] "
		return r
	}
	return later(v, r)
}

// unproved is the reply where DNS did not say, or we could not ask, whether an allow entry counts.
func unproved(v *verdict.Verdict, ref string) reply.Reply {
	r := reply.Reply{Code: 451, Enhanced: "4.4.3", Text: "not verified: try again later" + tail(ref)}
	r.Words = r.Text
	return later(v, r)
}

// newHere is the reply to the first mail of a domain.
func newHere(v *verdict.Verdict, ref string) reply.Reply {
	r := reply.Reply{Code: 451, Enhanced: "4.7.1", Words: "domain new here, try again later" + tail(ref)}
	r.Text = "deferred: " + r.Words
	return later(v, r)
}

// later gives r the sender as its subject.
func later(v *verdict.Verdict, r reply.Reply) reply.Reply {
	sender, _ := fit(shown(v), "", len("451 4.3.0 <>: ")+len(subjectOf(v.Source))+len(" address ")+len(r.Text))
	r.Subject = about(v, sender)
	return r
}

// shown is the sender as a reply shows it: canonical, or the text of which only the domain
// could be read. Where people have asked about a domain it is any sender there: that the
// null sender is refused must stand nowhere.
func shown(v *verdict.Verdict) string {
	switch {
	case !v.Sender.Null():
		return v.Sender.String()
	case v.Unread == "" && v.Domain.Text != "":
		return "*@" + v.Domain.Text
	}
	return v.Unread
}

func tail(ref string) string { return " (ref " + ref + ")" }

// fit makes sender and list printable, and shortens them so that they and the rest have
// at most maxReply octets: the sender first, then the list's name.
func fit(sender, list string, rest int) (string, string) {
	room := maxReply - rest
	sender, list = printable(sender), printable(list)
	list = shorten(list, max(listRoom, room-len(sender)))
	return shorten(sender, room-len(list)), list
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
