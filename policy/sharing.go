package policy

import (
	"slices"

	"blockd/policy/reply"
)

// A message has one header, one end and one answer to that, so its recipients must have
// in common what is done with it and what is still to be seen about it. The first one
// that joins settles both; one that is to have something else is sent again by the
// client, in a transaction of its own.

// replyApart asks for a recipient in a transaction of its own.
var replyApart = reply.Reply{Code: 452, Enhanced: "4.5.3", Text: "Send this recipient in a transaction of its own"}

// treatment is what is done with a message; the zero treatment passes it on.
type treatment struct {
	outcome Outcome
	list    string // that marks it or sets it aside
}

// treatmentOf is the part of a decision that all recipients share at a door. The list is
// not told to a door that holds a message whatever the list.
func (d *Door) treatmentOf(decided *Decision) treatment {
	t := treatment{outcome: decided.Outcome, list: decided.Tag.List}
	if d.Holds && t.outcome == Quarantine {
		t.list = ""
	}
	return t
}

// question is what is still to be seen before a recipient can be answered for good.
type openQuestion struct {
	senders [2]unsettled // of the sender's spellings: what the message decides
	group   group        // of who is asked about the header; 0 where it is not looked at
	whose   string       // recipient whose owners have a part in it; "" = none
}

// late reports whether the message decides about its sender.
func (q *openQuestion) late() bool { return q.senders != [2]unsettled{} }

// sharing is what the recipients that have joined a message have in common.
type sharing struct {
	openQuestion
	treatment
	joined, treated int      // how many recipients, and how many of them have the treatment
	recipients      []string // those that have joined, where something is open
}

// maxOpen bounds the recipients of one message whose answer comes at its end. Mail servers
// take a thousand at the most, by their defaults or before.
const maxOpen = 1000

// apart reports whether a decision leaves the other recipients of a message alone.
func (d *Door) apart(decided *Decision) bool { return d.Splits && decided.Outcome == Quarantine }

// Shares reports whether the recipient of d can be one of this message's.
func (t *Transaction) Shares(d *Decision) bool {
	s := &t.sharing
	return (s.joined == 0 || s.openQuestion == d.open) && !(d.AwaitsMessage && len(s.recipients) == maxOpen) &&
		(s.treated == 0 || t.door.apart(d) || s.treatment == t.door.treatmentOf(d))
}

// Join makes the recipient of d one of this message's, if it can be that, and writes the
// line about it. Else it is put off: d is then what it hears.
func (t *Transaction) Join(d *Decision) bool {
	t.unjoined = Decision{}
	if !t.Shares(d) {
		d.Outcome, d.Reply, d.Tag, d.AwaitsMessage = Apart, replyApart, reply.Tag{}, false
		if t.checker.logsMore(t.Client.Addr) {
			t.write("recipient put off", d)
		}
		return false
	}
	s := &t.sharing
	if s.joined == 0 {
		s.openQuestion = d.open
	}
	if s.joined++; s.openQuestion != (openQuestion{}) && len(s.recipients) < maxOpen {
		s.recipients = append(s.recipients, d.recipient)
	}
	if !t.door.apart(d) {
		if s.treated == 0 {
			s.treatment = t.door.treatmentOf(d)
			t.settled = Decision{Outcome: d.Outcome, Tag: d.Tag, Ref: d.Ref}
		}
		s.treated++
	}
	t.joinNew(d.recipient)
	if d.Outcome == Accept || d.Outcome == Mark {
		t.Sent(d.recipient)
	}
	t.log(d)
	return true
}

// Leave takes back the Join of a recipient that the message passes on to, because the
// next server has refused it.
func (t *Transaction) Leave(recipient string) {
	s := &t.sharing
	if t.newcomers > 0 && t.newTo(recipient) {
		t.newcomers--
	}
	t.unsend(recipient)
	s.joined--
	if s.treated--; s.treated == 0 {
		t.settled = Decision{}
	}
	if i := slices.Index(s.recipients, recipient); i >= 0 {
		s.recipients = slices.Delete(s.recipients, i, i+1)
	}
}

// first is the recipient that stands for all where they have something in common.
func (s *sharing) first() string {
	if len(s.recipients) == 0 {
		return ""
	}
	return s.recipients[0]
}

// weight orders outcomes, where one message has several decisions: a sender that is
// listed is not helped by another spelling, or another address, that is not.
func (o Outcome) weight() int {
	switch o {
	case Refuse:
		return 5
	case Defer:
		return 4
	case Discard:
		return 3
	case Quarantine:
		return 2
	case Mark:
		return 1
	}
	return 0
}
