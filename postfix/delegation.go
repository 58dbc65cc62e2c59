package postfix

import (
	"net/netip"

	"blockd/listener"
	"blockd/policy"
)

// delegation is policy delegation on one connection, which Postfix keeps for one
// smtpd process: one transaction at a time.
type delegation struct {
	*service
	tx   transaction
	room room

	clientText string // of client
	client     netip.Addr
}

// transaction is what the requests of one instance have in common. A list that
// changes between two recipients does not change the answer: one message, one
// generation.
type transaction struct {
	instance string // "" = none that could be remembered
	sender   string // internal form
	client   netip.Addr
	login    bool
	verdict  policy.Verdict

	shared    bool   // a recipient was let through, and the others must take its treatment
	treatment string // of the message, so far
}

func (d *delegation) measure(buf []byte, seen int) (int, error) {
	return measurePolicyRequest(buf, seen)
}

func (d *delegation) answer(out, request []byte) ([]byte, error) {
	r, err := parsePolicyRequest(request)
	if err != nil {
		return out, err
	}
	if r.duplicates > 0 {
		d.metrics.duplicates.Add(float64(r.duplicates))
	}
	return appendAction(out, d.decide(&r)), nil
}

// apologize answers by on_error, for nobody is refused because of a request that
// we cannot read.
func (d *delegation) apologize(out []byte) []byte {
	if d.settings.OnError == policy.TempfailOnError {
		return appendAction(out, "DEFER_IF_PERMIT 4.3.0 not checked: try again later")
	}
	return appendAction(out, dunno)
}

func appendAction(out []byte, action string) []byte {
	out = append(out, "action="...)
	out = append(out, action...)
	return append(out, "\n\n"...)
}

// decide answers one request. Postfix asks at RCPT, once for each recipient, in
// whatever restrictions we stand (smtpd_delay_reject); where it does not wait, it
// asks at CONNECT and MAIL as well. Where we stand in smtpd_end_of_data_restrictions
// too, it says at END-OF-MESSAGE that it has the whole message. A request at DATA says
// nothing of the kind: the client may go away behind the command.
func (d *delegation) decide(r *policyRequest) string {
	switch string(r.state) {
	case "RCPT":
		return d.recipient(r)
	case "MAIL":
		if d.settings.RejectAt == "mail" {
			d.judge(r)
			return d.early(r, d.prove(r, ""))
		}
	case "CONNECT":
		if client := d.address(r.client); d.settings.ClientRejectAt == "connect" && !listener.Within(d.settings.Trusted, client) {
			return d.early(r, d.checker.Client(client))
		}
	case "END-OF-MESSAGE":
		d.checker.Completed(d.judge(r))
	}
	d.metrics.answers[policy.Accept].Inc()
	return dunno
}

// early answers before a recipient is known. What is done with a message is left
// to RCPT.
func (d *delegation) early(r *policyRequest, v policy.Verdict) string {
	decision := d.checker.Recipient(v, "")
	if decision.Outcome != policy.Refuse && decision.Outcome != policy.Defer {
		d.metrics.answers[policy.Accept].Inc()
		return dunno
	}
	return d.say(r, v, decision, action(v, decision, r.space()))
}

// recipient answers about one recipient.
func (d *delegation) recipient(r *policyRequest) string {
	v := d.judge(r)
	recipient := external(d.room.text(r.recipient))
	if d.checker.Passes(recipient, v) {
		d.metrics.answers[policy.Accept].Inc()
		return dunno
	}
	v = d.prove(r, recipient)
	decision := d.checker.Recipient(v, recipient)
	v = d.checker.For(v, recipient)
	if decision.Outcome == policy.Refuse || decision.Outcome == policy.Defer {
		return d.say(r, v, decision, action(v, decision, r.space()))
	}
	if decision.Ref == "" { // the sender is none, or there is none; no list has a part in it
		d.metrics.answers[policy.Accept].Inc()
		return dunno
	}
	// Postfix does to the whole message what one recipient's answer says.
	switch how := treatment(v, decision); {
	case !d.tx.shared:
		d.tx.shared, d.tx.treatment = true, how
	case how != d.tx.treatment:
		d.metrics.again.Inc()
		if !d.checker.LogsMore(d.tx.client) {
			return sendAgain
		}
		d.log.Info("recipient put off", d.attrs(r, v, decision, sendAgain)...)
		return sendAgain
	case decision.Outcome == policy.Mark:
		return d.say(r, v, decision, dunno) // the field stands there already
	}
	return d.say(r, v, decision, action(v, decision, r.space()))
}

// sendAgain is for a recipient whose message is to be treated in another way than
// that of the recipients before. The client sends it again, by itself.
const sendAgain = "452 4.5.3 send this recipient in a transaction of its own"

// say counts and logs an answer.
func (d *delegation) say(r *policyRequest, v policy.Verdict, decision policy.Decision, answer string) string {
	d.metrics.answers[decision.Outcome].Inc()
	if !decision.Folded {
		d.log.Info(decision.Event(v), d.attrs(r, v, decision, answer)...)
	}
	return answer
}

// judge returns the verdict of the transaction, or makes it. Of a trusted client
// nothing is asked, of one who has authenticated, if so configured, only whether
// its address is listed.
func (d *delegation) judge(r *policyRequest) policy.Verdict {
	client, login := d.address(r.client), len(r.login) > 0
	t := &d.tx
	if t.instance != "" && t.instance == string(r.instance) && t.sender == string(r.sender) && t.client == client && t.login == login {
		return t.verdict
	}
	*t = transaction{instance: d.room.text(r.instance), sender: d.room.text(r.sender), client: client, login: login}
	reversePath := external(t.sender)
	seen := policy.Seen{Helo: d.room.text(r.helo), Sender: reversePath}
	switch {
	case listener.Within(d.settings.Trusted, client):
		client, reversePath, seen = netip.Addr{}, "", policy.Seen{}
	case login && d.settings.SkipAuthenticated:
		reversePath, seen.Authenticated = "", true
	}
	t.verdict = d.checker.Envelope(client, reversePath)
	t.verdict.Seen = seen
	return t.verdict
}

// address reads client_address, which is the same for many requests. "unknown" is
// the zero address.
func (d *delegation) address(text []byte) netip.Addr {
	if d.clientText != string(text) {
		d.clientText = string(text)
		d.client, _ = netip.ParseAddr(d.clientText)
		d.client = d.client.WithZone("").Unmap()
	}
	return d.client
}
