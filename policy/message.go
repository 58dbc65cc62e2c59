package policy

import (
	"context"
	"io"

	"blockd/mail/header"
	"blockd/policy/reply"
	"blockd/policy/verdict"
)

// Header decides by the addresses of the header, which lists are asked about, and which
// recipients have in common. It is told them once. fault is what the client hears if the
// header could not be read, and zero if it could; nobody hears it whose mail lists have
// nothing to do with.
//
// The decision refuses the message, or is what becomes of it; where the message AwaitsMessage,
// so far.
func (t *Transaction) Header(fields []header.Field, fault reply.Reply) Decision {
	if !t.ReadsHeader() {
		return t.settled
	}
	t.fields, t.fault = fields, fault
	if t.late() { // who the header's addresses matter to is not known yet
		return Decision{AwaitsMessage: true}
	}
	return t.judgeHeader()
}

// judgeHeader looks the addresses of the header up, and decides by those about which
// nothing is open.
func (t *Transaction) judgeHeader() Decision {
	all, fault := t.lookUpHeader()
	if fault.Code != 0 {
		return Decision{Outcome: Refuse, Reply: fault}
	}
	if t.ended {
		return t.judge(all)
	}
	now := all[:0:0]
	for _, v := range all {
		if (t.unsettledOf(&v, t.first()) == unsettled{}) {
			now = append(now, v)
		} else {
			t.judged = append(t.judged, v)
		}
	}
	if len(t.judged) > 0 && !t.door.Streams { // all of it is answered at once
		t.judged = all
		return Decision{AwaitsMessage: true}
	}
	d := t.judge(now)
	d.AwaitsMessage = len(t.judged) > 0
	return d
}

// lookUpHeader looks up the addresses of the header. Mail whose envelope an exception frees
// from all lists is not asked further.
func (t *Transaction) lookUpHeader() (all []verdict.Verdict, fault reply.Reply) {
	c, recipient := t.checker, t.first()
	for _, v := range t.forOwners(recipient) {
		if v := c.forRecipient(v, recipient); v.Frees() {
			return nil, reply.Reply{}
		}
	}
	if t.fault.Code != 0 {
		return nil, t.fault
	}
	for _, f := range t.fields {
		source, _ := verdict.FieldSource(f.Name)
		v := c.ask(question{Question: Question{About: aboutField, Text: f.Text}, source: source, index: t.index, mail: true})
		v.Seen.UTF8, v.Seen.Hearsay = t.mail.UTF8, t.Hearsay
		v = c.proveOrigin(context.Background(), v, recipient, t.origin()) // asks nothing: SPF is of envelopes
		if t.ended {
			v = c.proveBy(context.Background(), v, recipient, t.origin(), t.facts)
		}
		all = append(all, v)
	}
	return all, reply.Reply{}
}

// judge decides by addresses of the header. What a list wants done with the message is
// done, where nothing worse is done already.
func (t *Transaction) judge(all []verdict.Verdict) Decision {
	ask, recipient := (*checks).recipientAt, t.first()
	if t.ended || t.door.Streams {
		ask = (*checks).endOfMessageAt
	}
	worst := t.settled
	for _, v := range all {
		if t.ended && t.door.Streams && t.marks(v, recipient) {
			continue // the message has gone on without a mark on top
		}
		d := ask(t.checker, t.door, v, recipient)
		if d.Ref == "" || v.Kind == verdict.Allowed {
			continue
		}
		v = t.checker.forRecipient(v, recipient)
		d.recipient, d.Verdict = recipient, &v
		d = t.door.able(d)
		t.log(&d)
		if d.Outcome.weight() > worst.Outcome.weight() {
			worst = d
		}
	}
	if !worst.Refuses() {
		t.settled = worst
	}
	return worst
}

// marks reports whether the decision by an address is to mark the message.
func (t *Transaction) marks(v verdict.Verdict, recipient string) bool {
	v = t.checker.forRecipient(v, recipient)
	return t.checker.recipient(t.door, &v, recipient).Outcome == Mark
}

// Examine looks for what the message proves. It is told the whole message, from its first
// header field to the last octet before the final dot; nil is one that proves nothing,
// since there is more of it than is kept. The error is that of message.
func (t *Transaction) Examine(ctx context.Context, message io.Reader) error {
	c := t.checker
	if message != nil {
		facts, err := c.examine(ctx, t.Client.Addr, message)
		if err != nil {
			return err
		}
		t.facts = facts
	}
	if t.late() {
		for i, v := range t.forOwners(t.first()) {
			if with := c.proveBy(ctx, v, t.first(), t.origin(), t.facts); with.Evidence.Tried != v.Evidence.Tried {
				t.proved(i, with.Evidence)
			}
		}
	}
	t.proveBy(ctx, t.judged)
	return nil
}

func (t *Transaction) proveBy(ctx context.Context, all []verdict.Verdict) {
	for i, v := range all {
		all[i] = t.checker.proveBy(ctx, v, t.first(), t.origin(), t.facts)
	}
}

// Message is the last word about a message, after Examine where something awaits it. The
// answer is the same for all recipients, as they share what was open; the reference in it
// is that of the first.
func (t *Transaction) Message() Decision {
	t.ended = true
	if !t.late() {
		return t.judge(t.judged)
	}
	for i, recipient := range t.recipients {
		d := t.weigh(recipient, (*checks).endOfMessageAt)
		if i == 0 {
			t.settled = d
		}
		d.Reply = t.settled.Reply // which is what the client hears
		t.log(&d)
	}
	if t.settled.Refuses() || !t.ReadsHeader() {
		return t.settled
	}
	return t.judgeHeader()
}
