package policy

import (
	"context"
	"net/netip"
	"slices"

	"blockd/index"
	"blockd/mail/header"
	"blockd/mail/msgauth"
	"blockd/policy/ask"
	"blockd/policy/reply"
	"blockd/policy/verdict"
)

// Transaction decides about one message after the other of a client: at MAIL, for each
// recipient, at the end of the header and at the end of the message. Every front door
// drives it and does what it says. All of a message is decided by one generation. It is
// for one goroutine at a time.
type Transaction struct {
	Client Client // may change between two messages
	// Hearsay: any user of this machine may be the door's peer. Its messages are judged as all are, and prove nothing:
	// they speak for no sender at the gate, their refusals against no exception, and they make nobody a correspondent.
	Hearsay bool

	from     *Checker
	checker  *checks // of the message, and else of the client's last one
	door     *Door
	verdicts []verdict.Verdict // of the sender, and of its second spelling
	asked    [2]*ask.Inquiry   // of these verdicts: what stores are still asked; nil = nothing
	message
}

// message is what a transaction knows of one message.
type message struct {
	mail  Mail
	index *index.Index // that answers for the rest of the message; nil = nothing else is looked up
	reads bool         // lists are asked about the header

	personal *index.Index      // the same, where it has entries about recipients; else nil
	ownedFor string            // recipient that owned is for; "" = none yet
	owned    []verdict.Verdict // verdicts, with what the recipient's owners say

	newDomain bool // the sender's domain has not sent mail here before, and that matters
	newcomers int  // recipients that have joined, and to which first_seen applies, where it marks the message

	sharing
	unjoined Decision // of a recipient that was not refused and has not joined yet
	settled  Decision // what becomes of the message, so far

	sent []string // recipients of an outgoing message that have not been noted

	fields []header.Field    // the header's addresses, once they are there
	fault  reply.Reply       // the header could not be read
	judged []verdict.Verdict // of those addresses that the message decides about
	ended  bool              // the message has
	facts  *msgauth.Message  // then; nil = it proves nothing
}

// Begin makes t, which is zero, a transaction of a client at a door. A transaction has some
// thousand octets, so it is made where it stays: the stack of a session would grow for a copy.
func (t *Transaction) Begin(c *Checker, d *Door, client Client) {
	t.from, t.checker, t.door, t.Client = c, c.now.Load(), d, client
}

// Reset ends a message, whatever its state.
func (t *Transaction) Reset() {
	t.tellUnjoined()
	t.verdicts = t.verdicts[:0]
	t.asked = [2]*ask.Inquiry{}
	t.message = message{}
}

// Connect decides about the client before it has said anything. Whatever else a list
// wants than to refuse it is left to the recipients.
func (t *Transaction) Connect() Decision {
	if t.Client.Trusted {
		return Decision{}
	}
	v := t.checker.ask(question{Question: Question{About: AboutClient, Client: t.Client.Addr}})
	v.Seen.Hearsay = t.Hearsay
	d := t.checker.recipientAt(t.door, v, "")
	if !d.Refuses() {
		return Decision{}
	}
	if t.door.Greets {
		d.Reply = d.Reply.InPlaceOfGreeting()
	}
	own := v // a clear client costs no allocation
	d.Verdict = &own
	t.log(&d)
	return d
}

// Mail begins a message and looks its sender up, together with the client. Stores of lists are asked meanwhile, at a door
// that goes on to the recipients; the first of these waits for what they say. Of a trusted
// client nothing is asked; of one that has authenticated, if so configured, only whether
// its address is listed. Its decision is the last word where it has Passed, and at a door
// that hears of senders only.
func (t *Transaction) Mail(m Mail) Decision {
	t.Reset()
	t.checker = t.from.now.Load()
	c, client := t.checker, t.Client.Addr
	skips := t.Client.Authenticated && t.door.SkipAuthenticated
	seen := verdict.Seen{Helo: t.Client.Helo, Sender: m.Written, UTF8: m.UTF8, Authenticated: skips}
	t.mail = m
	t.reads = t.door.SeesHeader && c.sources.Header() && !skips && !t.Client.Trusted
	switch {
	case t.Client.Trusted:
		client, m.Sender, m.Other, seen = netip.Addr{}, "", "", verdict.Seen{}
	case skips:
		m.Sender, m.Other = "", ""
	}
	if t.hearsOwners(skips); t.index == nil && (t.reads || m.Other != "") {
		t.index = c.serving()
	}
	t.look(client, m.Sender, seen)
	if m.Other != "" {
		t.look(client, m.Other, seen)
	}
	if t.asked == [2]*ask.Inquiry{} {
		t.newDomain = t.fresh()
	}
	switch {
	case t.door.SendersOnly:
		return t.whole()
	case t.door.PassesAtMail:
		return t.passed()
	}
	return Decision{}
}

// passed says whether a message is accepted for every recipient, and whether its end is of
// use.
func (t *Transaction) passed() Decision {
	d := Decision{Passed: !t.reads && !t.newDomain && t.personal == nil && passes(t.verdicts),
		WantsCompleted: t.newDomain && t.checker.first.marks() || !t.Hearsay && t.checker.wantsCompleted(t.verdicts...)}
	if d.Passed {
		t.checker.recordPassed(t.door, "", t.verdicts)
	}
	return d
}

// look adds the verdict about one spelling of the sender.
func (t *Transaction) look(client netip.Addr, reversePath string, seen verdict.Seen) {
	later := !t.door.SendersOnly && !t.door.PassesAtMail
	v, asked := t.checker.begin(question{Question: Question{Text: reversePath, Client: client}, index: t.index, later: later, mail: true})
	v.Seen, v.Seen.Hearsay = seen, t.Hearsay
	t.asked[len(t.verdicts)] = asked
	t.verdicts = append(t.verdicts, v)
}

// finish waits for the stores that are still asked, for what is left of their time.
func (t *Transaction) finish(ctx context.Context) {
	if t.asked == [2]*ask.Inquiry{} {
		return
	}
	for i, asked := range t.asked {
		if asked != nil {
			t.checker.finish(ctx, &t.verdicts[i], asked)
		}
	}
	t.asked = [2]*ask.Inquiry{}
	t.newDomain = t.fresh()
}

// asks reports whether a store has not answered yet.
func (t *Transaction) asks() bool {
	return slices.ContainsFunc(t.asked[:], func(q *ask.Inquiry) bool { return q != nil && !q.Ready() })
}

// whole is the decision where nobody asks about recipients.
func (t *Transaction) whole() Decision {
	v := t.verdicts[0]
	if t.mail.List != "" {
		v = v.Alone(t.mail.List)
	}
	d := t.checker.recipient(t.door, &v, "")
	t.checker.record(t.door, &v, "", &d)
	if d.Ref != "" {
		own := v // a clear sender costs no allocation
		d.Verdict = &own
		t.log(&d)
	}
	return d
}

// Asks reports whether Recipient may have to wait, for a store or for DNS.
func (t *Transaction) Asks(recipient string) bool {
	if t.asks() {
		return true
	}
	t.finish(context.Background())
	all := t.forOwners(recipient)
	return !passes(all) && slices.ContainsFunc(all, func(v verdict.Verdict) bool { return t.checker.asks(v, recipient) })
}

// Prove waits for what Recipient would wait for: for a door that does other things meanwhile.
// What was found is of the sender, and holds for every recipient.
func (t *Transaction) Prove(ctx context.Context, recipient string) {
	t.finish(ctx)
	for i, v := range t.forOwners(recipient) {
		if with := t.checker.proveOrigin(ctx, v, recipient, t.origin()); with.Evidence.Tried != v.Evidence.Tried {
			t.proved(i, with.Evidence)
		}
	}
}

func (t *Transaction) origin() origin {
	return origin{Client: t.Client.Addr, Helo: t.Client.Helo, Authenticated: t.Client.Authenticated}
}

// prove looks for what is known before the message and can have a blocked sender allowed:
// that the client has logged in, and SPF.
func (t *Transaction) prove(recipient string) {
	if t.door.forgets {
		return
	}
	ctx := context.Background()
	if t.door.ProofTimeout > 0 && t.Asks(recipient) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.door.ProofTimeout)
		defer cancel()
	}
	t.Prove(ctx, recipient)
}

// Recipient decides about one recipient, given as the client wrote it without angle
// brackets; "" asks about the sender alone, where it is refused at MAIL. A recipient that
// is not refused becomes one of the message's by Join.
func (t *Transaction) Recipient(recipient string) Decision {
	t.tellUnjoined()
	t.finish(context.Background())
	if passes(t.forOwners(recipient)) {
		if recipient != "" && !t.putsOff(recipient) { // which is remembered then
			t.checker.recordPassed(t.door, recipient, t.verdicts)
		}
		return Decision{recipient: recipient, open: t.questionOf(recipient)}
	}
	t.prove(recipient)
	q := t.questionOf(recipient)
	if q.late() {
		return Decision{recipient: recipient, open: q, AwaitsMessage: true}
	}
	d := t.weigh(recipient, (*checks).recipientAt)
	switch d.open = q; {
	case d.Refuses():
		t.log(&d)
	case d.Ref != "" && recipient != "":
		t.unjoined = d
	}
	return d
}

// questionOf is what is open about a recipient.
func (t *Transaction) questionOf(recipient string) (q openQuestion) {
	if recipient != "" && t.reads {
		q.group = t.checker.group(recipient, t.forOwners(recipient)...)
	}
	for i, v := range t.forOwners(recipient) {
		q.senders[i] = t.unsettledOf(&v, recipient)
		if q.senders[i] != (unsettled{}) && v.Owned() {
			q.whose = recipient
		}
	}
	return q
}

// unsettledOf is what the message decides for a recipient, by one verdict.
func (t *Transaction) unsettledOf(v *verdict.Verdict, recipient string) unsettled {
	if !t.door.SeesMessage || len(v.Matches) == 0 {
		return unsettled{}
	}
	s := t.checker.unsettled(t.door, *v, recipient)
	if t.door.Streams && s.Otherwise == Mark {
		return unsettled{}
	}
	return s
}

// weigh returns the decision that weighs most, by one of the ways to ask.
func (t *Transaction) weigh(recipient string, ask func(*checks, *Door, verdict.Verdict, string) Decision) (worst Decision) {
	for i, v := range t.forOwners(recipient) {
		if d := ask(t.checker, t.door, v, recipient); i == 0 || d.Outcome.weight() > worst.Outcome.weight() {
			worst = d
			worst.Unreadable = v.Kind == verdict.Unknown && !v.Internal() && !d.Refuses() && !t.checker.isExempt(recipient)
			v = t.checker.forRecipient(v, recipient)
			worst.Verdict = &v
		}
	}
	if worst.recipient = recipient; recipient == "" {
		return worst // what the door cannot do is answered to each recipient
	}
	return t.door.able(worst)
}

// able is a decision as far as the door can carry it out.
func (d *Door) able(decided Decision) Decision {
	switch {
	case decided.Outcome == Quarantine && !d.Quarantines:
		decided.Outcome, decided.Reply = Defer, replyNoQuarantine
	case decided.Outcome == Mark && !d.Marks:
		decided.Outcome, decided.Tag = Accept, reply.Tag{}
	}
	return decided
}

var replyNoQuarantine = reply.Reply{Code: 451, Enhanced: "4.3.5", Text: "This message cannot be set aside here, try again later"}

// TurnDown is the decision to refuse a recipient by a rule of the door's own, in the words
// of r, where no list has a reason to.
func (t *Transaction) TurnDown(recipient string, r reply.Reply) Decision {
	t.unjoined = Decision{}
	t.finish(context.Background())
	v := t.verdicts[0]
	d := t.checker.turnDown(t.door, &v, recipient, r)
	d.recipient = recipient
	if !d.Folded {
		t.write("recipient not taken", &d)
	}
	return d
}

// Completed says that the next server has accepted the message. A door that cannot know
// says it where it knows most: a milter at the end of the message.
func (t *Transaction) Completed() {
	if t.settled.Outcome == Accept {
		if !t.Hearsay {
			t.checker.completed(t.verdicts...)
		}
		t.noteDomain()
	}
	if t.settled.Outcome == Accept || t.settled.Outcome == Mark {
		t.learnSent()
	}
}

// Exempts reports whether recipient, the address of RCPT TO without angle brackets, is one that everybody may write to.
func (t *Transaction) Exempts(recipient string) bool { return t.checker.isExempt(recipient) }

// Tag is what the message is marked with, so far.
func (t *Transaction) Tag() reply.Tag {
	if t.settled.Outcome != Mark {
		return reply.Tag{}
	}
	return t.settled.Tag
}

// AwaitsMessage reports whether the message decides about its sender, or about an address
// of its header.
func (t *Transaction) AwaitsMessage() bool { return t.late() || len(t.judged) > 0 }

// ReadsHeader reports whether Header is to be told the addresses of the header.
func (t *Transaction) ReadsHeader() bool {
	return t.reads && t.joined > 0 && t.group != unread
}

// ReadsField is ReadsHeader for one field of the header: its addresses are among those that
// Header is to be told.
func (t *Transaction) ReadsField(name string) bool {
	s, ok := verdict.FieldSource(name)
	return ok && t.ReadsHeader() && t.checker.sources.Has(s)
}

// Holds reports whether the sender is blocked, or may be by what a store has yet to say: a door that passes
// messages on keeps MAIL until a recipient may have the message.
func (t *Transaction) Holds() bool {
	if t.asks() {
		return true
	}
	t.finish(context.Background())
	return len(t.verdicts) > 0 && (t.verdicts[0].Kind == verdict.Blocked || t.verdicts[0].Unlifted)
}

// Verdict is that of the sender, for what else a door says about it.
func (t *Transaction) Verdict() (k verdict.Kind, generation string) {
	if len(t.verdicts) == 0 {
		return verdict.Clear, ""
	}
	return t.verdicts[0].Kind, t.verdicts[0].Generation
}

// Found is what was found out about the sender, for Authentication-Results; m is nil where
// the message was not looked at.
func (t *Transaction) Found() (sender string, spf msgauth.SPF, m *msgauth.Message) {
	for _, v := range t.verdicts {
		if v.Evidence.SPF.Result != "" {
			return v.Sender.String(), v.Evidence.SPF, t.facts
		}
	}
	return "", msgauth.SPF{}, t.facts
}
