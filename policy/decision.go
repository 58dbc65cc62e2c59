package policy

import (
	"errors"
	"time"

	"blockd/lists"
	"blockd/policy/reply"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// Outcome is what becomes of one recipient of a transaction.
type Outcome uint8

// The outcomes.
const (
	Accept     Outcome = iota
	Refuse             // permanent, 550
	Defer              // temporary, 451
	Quarantine         // taken and set aside: 250 only once the message is stored there
	Mark               // passed on with a header field that holds Decision.Tag
	Discard            // taken and dropped; only at a door that Discards
	Apart              // put off: the client sends this recipient again, in a transaction of its own
)

// Decision is the answer to one RCPT (or to MAIL, where the filter refuses there).
type Decision struct {
	Outcome   Outcome
	Reply     reply.Reply   // of Refuse and Defer; of Quarantine its Words alone
	Ref       string        // in Reply, in Tag and in the log; "" when accepted without a match
	Tag       reply.Tag     // of Mark and Quarantine
	Tarpit    time.Duration // hold the answer back for so long; 0 to MaxTarpit
	Exempt    bool          // a listed sender or client, accepted because of the recipient
	Shadow    bool          // accepted, but a shadow list would have refused
	FirstSeen bool          // deferred, since the sender's domain is new here
	Folded    bool          // the door writes no line of the log: another stands for it (package repeat)

	Passed         bool // at MAIL: the message is accepted for every recipient there is
	WantsCompleted bool // at MAIL, where the door PassesAtMail: Completed is of use
	AwaitsMessage  bool // the answer comes at the end of the message
	Unreadable     bool // the sender is no address, and nothing about its client has decided

	Verdict *verdict.Verdict // that it was made of, as the recipient's policy has it; nil: no list has a part in it

	recipient string
	open      openQuestion // about the recipient
}

// Refuses reports whether it is a refusal, permanent or temporary.
func (d Decision) Refuses() bool { return d.Outcome == Refuse || d.Outcome == Defer }

// recipientAt decides about one recipient of an envelope with verdict v; "" asks about the
// envelope alone, by all lists. Each decision has a reference of its own. It is
// remembered, see Settings.History; without a recipient only if it refuses or defers.
func (c *checks) recipientAt(door *Door, v verdict.Verdict, recipient string) Decision {
	v = c.forRecipient(v, recipient)
	d := c.recipient(door, &v, recipient)
	if recipient != "" || d.Refuses() {
		c.record(door, &v, recipient, &d)
	}
	return d
}

// recipient is recipientAt for a verdict that is the recipient's.
func (c *checks) recipient(door *Door, v *verdict.Verdict, recipient string) Decision {
	switch {
	case (v.Kind == verdict.Blocked || v.Unlifted) && c.isExempt(recipient):
		return Decision{Ref: c.newRef(), Exempt: true}
	case v.Kind == verdict.Blocked && (c.unsure && v.Unsure != 0 || v.Short != 0):
		ref := c.newRef()
		return Decision{Outcome: Defer, Ref: ref, Reply: unproved(v, ref)}
	case v.Unlifted, v.PutOff && !c.isExempt(recipient) && !c.policies.without(recipient):
		ref := c.newRef()
		return Decision{Outcome: Defer, Ref: ref, Reply: unchecked(v, ref)}
	case v.Kind == verdict.Blocked:
		return c.consequence(door, v)
	case v.Internal() && !errors.Is(v.Err, verdict.ErrUnasked) && c.defers && !c.isExempt(recipient) && !c.policies.without(recipient):
		ref := c.newRef()
		return Decision{Outcome: Defer, Ref: ref, Reply: unchecked(v, ref)}
	case v.Internal(), len(v.Matches) > 0:
		return Decision{Ref: c.newRef(), Shadow: v.Shadow >= 0}
	}
	return Decision{}
}

// endOfMessageAt is recipientAt for the answer to the end of a message that nothing in it
// has proved: its refusal is 554, since there is no transaction any more
// (RFC 5321, section 4.2.2), unless the entry or its list names a code.
func (c *checks) endOfMessageAt(door *Door, v verdict.Verdict, recipient string) Decision {
	d := c.recipientAt(door, v, recipient)
	if d.Outcome == Refuse && !d.Reply.Named {
		d.Reply.Code = 554
	}
	return d
}

// turnDown is the decision to refuse a recipient by a rule of the door's own, in the words
// of r. It is remembered, as refused for no list, since the contact may have its reference.
func (c *checks) turnDown(door *Door, v *verdict.Verdict, recipient string, r reply.Reply) Decision {
	v.Decider, v.Shadow = -1, -1
	d := Decision{Outcome: Refuse, Reply: r, Ref: c.newRef()}
	d.Reply.Contact = reply.Contact(c.contact, "", d.Ref)
	c.record(door, v, recipient, &d)
	return d
}

// forRecipient returns v as the recipient's policy has it: decided by the lists that count
// for this recipient. It is v itself for a recipient of no policy.
func (c *checks) forRecipient(v verdict.Verdict, recipient string) verdict.Verdict {
	if len(v.Matches)+len(v.Unasked) == 0 || recipient == "" {
		return v
	}
	if only := c.policies.of(recipient); only != nil {
		return v.For(only)
	}
	return v
}

// onMatch is what the setting of a list leads to.
func onMatch(o rule.OnMatch) Outcome {
	switch o {
	case rule.Tempfail:
		return Defer
	case rule.Quarantine:
		return Quarantine
	case rule.Tag:
		return Mark
	}
	return Refuse
}

// consequence is the decision about what Matches[Decider] blocks.
func (c *checks) consequence(door *Door, v *verdict.Verdict) Decision {
	list := v.ListName(v.Decider)
	own := c.rules[list]
	d := Decision{Ref: c.newRef()}
	switch action := v.Matches[v.Decider].Action; {
	case action == lists.Tempfail:
		d.Outcome = Defer
	case action == lists.Discard && own.Discard && door.Discards:
		d.Outcome = Discard
	default:
		// A discard entry too: no door that cannot drop a message may say 250 to
		// what nobody will have.
		d.Outcome, d.Tarpit = onMatch(own.OnMatch), min(own.Tarpit, rule.MaxTarpit)
	}
	switch d.Outcome {
	case Refuse, Defer:
		d.Reply = c.words(v, d.Outcome, list, d.Ref)
	case Quarantine:
		d.Tag, d.Reply.Words = reply.Tag{List: list, Ref: d.Ref}, because(v, d.Ref)
	case Mark:
		d.Tag = reply.Tag{List: list, Ref: d.Ref}
	}
	return d
}
