package policy

import (
	"blockd/policy/verdict"
	"blockd/records/firstseen"
)

// FirstSeen says what becomes of mail from a domain that has not sent mail here before: the message
// gets the header field FirstSeenField, or its recipients are put off once. It never refuses.
//
// It is about mail that no list has a reason to stop or to let pass: the verdict is clear. Mail of
// trusted clients, of clients that have logged in, of the null sender, and to recipients that are exempt or
// have no list, is left as it is.
type FirstSeen struct {
	Domains *firstseen.Set // those that have sent mail; nil = nothing is done
	Defers  bool           // put off; else the message gets the field
}

// FirstSeenField is the header field of a message from a domain that has not sent mail here before. Its
// value is always FirstSeenYes, so that a field which a client has written can claim nothing to its
// advantage.
const (
	FirstSeenField = "X-Blockd-First-Seen"
	FirstSeenYes   = "yes"
)

// marks reports whether messages get the field.
func (f *FirstSeen) marks() bool { return f.Domains != nil && !f.Defers }

// fresh reports whether the sender's domain has not sent mail here before, where that matters. A
// domain that has come again is noted.
func (t *Transaction) fresh() bool {
	f := &t.checker.first
	if f.Domains == nil || t.door.SendersOnly || f.marks() && !t.door.Marks || t.Client.Trusted || t.Client.Authenticated {
		return false
	}
	for i := range t.verdicts {
		if t.verdicts[i].Kind != verdict.Clear {
			return false
		}
	}
	domain := t.verdicts[0].Sender.Domain()
	return domain != "" && !f.Domains.Known(domain)
}

// newTo reports whether a recipient's mail is treated as that of a new domain.
func (t *Transaction) newTo(recipient string) bool {
	return t.newDomain && recipient != "" && !t.checker.isExempt(recipient) && !t.checker.policies.without(recipient)
}

// putsOff reports whether PutOff will put a recipient off.
func (t *Transaction) putsOff(recipient string) bool {
	return t.checker.first.Defers && t.newTo(recipient)
}

// PutOff reports whether the recipient of d, who is not refused, is put off, since the sender's domain is
// new here; d is then what the client hears. Every door asks it after its own rules and before Join: from
// then on the domain is known, so that the client's next attempt passes.
func (t *Transaction) PutOff(d *Decision) bool {
	if d.Outcome != Accept || d.Verdict != nil && d.Verdict.Kind == verdict.Allowed || !t.putsOff(d.recipient) {
		return false
	}
	t.log(&t.unjoined) // of a list in shadow mode
	t.unjoined = Decision{}
	v := t.verdicts[0]
	v.Decider, v.Shadow = -1, -1 // no list has a part in this
	ref := t.checker.newRef()
	*d = Decision{Outcome: Defer, Ref: ref, Reply: newHere(&v, ref), FirstSeen: true, Verdict: &v, recipient: d.recipient}
	t.checker.record(t.door, &v, d.recipient, d)
	t.checker.first.Domains.AddIfAbsent(v.Sender.Domain())
	t.checker.first.Domains.Deferred()
	t.log(d)
	return true
}

// joinNew notes that a recipient has joined whose mail gets the field. A door that does not hear of the
// end of a message knows most of it now.
func (t *Transaction) joinNew(recipient string) {
	if !t.newTo(recipient) || t.checker.first.Defers {
		return
	}
	t.newcomers++
	t.checker.first.Domains.Tagged()
	if !t.door.HearsEnd {
		t.noteDomain()
	}
}

// noteDomain says that the sender's domain has sent mail here. A recipient that was accepted is no
// message: any client can name a sender.
func (t *Transaction) noteDomain() {
	if t.newcomers > 0 {
		t.checker.first.Domains.AddIfAbsent(t.verdicts[0].Sender.Domain())
	}
}

// FirstSeen reports whether the message gets FirstSeenField, so far. A message has one header: the field
// is in it if one of its recipients is to have it.
func (t *Transaction) FirstSeen() bool { return t.newcomers > 0 }
