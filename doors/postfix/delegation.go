package postfix

import (
	"log/slog"
	"net/netip"

	"blockd/internal/listener"
	"blockd/policy"
	"blockd/policy/reply"
	"blockd/policy/rule"
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

// transaction is the common state of the requests of one instance. A list that
// changes between two recipients does not change the answer: one generation
// decides about a message.
type transaction struct {
	instance string // "" = the request named none
	sender   string // internal form
	policy.Transaction

	// Of the current request, for the log.
	named, queueID []byte // the instance, the queue ID
}

func newDelegation(s *service, private bool) *delegation {
	d := &delegation{service: s}
	d.tx.Begin(s.checker, &s.door, policy.Client{Line: d.line})
	d.tx.Hearsay = !private
	return d
}

// line returns Postfix's own fields of a log line.
func (d *delegation) line() []slog.Attr {
	return []slog.Attr{slog.String("instance", string(d.tx.named)), slog.String("queue_id", string(d.tx.queueID))}
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

// apologize answers by on_error: a request that cannot be read refuses nobody's mail.
func (d *delegation) apologize(out []byte) []byte {
	if d.settings.OnError == rule.TempfailOnError {
		return appendAction(out, "DEFER_IF_PERMIT 4.3.0 not checked: try again later")
	}
	return appendAction(out, dunno)
}

func appendAction(out []byte, action string) []byte {
	out = append(out, "action="...)
	out = append(out, action...)
	return append(out, "\n\n"...)
}

// decide answers one request. Postfix asks at RCPT, once for each recipient, from
// any list of restrictions (smtpd_delay_reject). If it does not wait, it
// asks at CONNECT and MAIL as well. From smtpd_end_of_data_restrictions
// it says at END-OF-MESSAGE that it has the whole message. A request at DATA does not
// prove that: the client may go away after the command.
func (d *delegation) decide(r *policyRequest) string {
	d.tx.named, d.tx.queueID = r.instance, r.queueID // no queue ID before the first recipient
	switch string(r.state) {
	case "RCPT":
		d.begin(r)
		return d.recipient(r)
	case "MAIL":
		if d.settings.RejectAt == "mail" {
			d.begin(r)
			return d.beforeRecipient(r, d.tx.Recipient(""))
		}
	case "CONNECT":
		if d.settings.ClientRejectAt == "connect" {
			var t policy.Transaction
			t.Begin(d.checker, &d.door, d.connected(r))
			return d.beforeRecipient(r, t.Connect())
		}
	case "END-OF-MESSAGE":
		d.begin(r)
		d.tx.Completed()
	}
	d.metrics.answers[policy.Accept].Inc()
	return dunno
}

// beforeRecipient answers before a recipient is known. What is done with a message is left
// to RCPT.
func (d *delegation) beforeRecipient(r *policyRequest, decided policy.Decision) string {
	if !decided.Refuses() {
		decided = policy.Decision{}
	}
	return d.say(r, &decided)
}

// recipient answers about one recipient. What a list wants done with a message, Postfix
// does to the whole of it.
func (d *delegation) recipient(r *policyRequest) string {
	decided := d.tx.Recipient(external(d.room.text(r.recipient)))
	if decided.Refuses() || d.tx.PutOff(&decided) {
		return d.say(r, &decided)
	}
	marked, first := d.tx.Tag() != (reply.Tag{}), d.tx.FirstSeen()
	joined := d.tx.Join(&decided)
	switch {
	case marked && decided.Outcome == policy.Mark:
		d.metrics.answers[policy.Mark].Inc()
		return dunno // the message already has the field
	case joined && !first && d.tx.FirstSeen():
		d.metrics.answers[policy.Mark].Inc()
		return "PREPEND " + policy.FirstSeenField + ": " + policy.FirstSeenYes
	}
	return d.say(r, &decided)
}

// say counts an answer and returns it as an action.
func (d *delegation) say(r *policyRequest, decided *policy.Decision) string {
	d.metrics.answers[decided.Outcome].Inc()
	return action(decided, r.space())
}

// begin begins the transaction that a request is of, if it is not that of the one before.
func (d *delegation) begin(r *policyRequest) {
	client, t := d.connected(r), &d.tx
	if t.instance != "" && t.instance == string(r.instance) && t.sender == string(r.sender) &&
		t.Client.Addr == client.Addr && t.Client.Authenticated == client.Authenticated {
		return
	}
	t.instance, t.sender, t.Client = d.room.text(r.instance), d.room.text(r.sender), client
	t.Client.Helo = d.room.text(r.helo)
	sender := external(t.sender)
	t.Mail(policy.Mail{Sender: sender, Written: sender})
}

// connected returns the client of a request, as it is known when it connects.
func (d *delegation) connected(r *policyRequest) policy.Client {
	client := d.address(r.client)
	return policy.Client{Addr: client, Authenticated: len(r.login) > 0,
		Trusted: listener.Within(d.settings.Trusted, client) || d.own(client, r.port), Line: d.tx.Client.Line}
}

// own is Settings.Own.
func (d *delegation) own(client netip.Addr, port []byte) bool {
	if d.settings.Own == nil || !client.IsValid() {
		return false
	}
	n := uint16(0)
	for _, c := range port { // of Postfix, and so a number or a word; what is neither is a port that is not ours
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + uint16(c-'0')
	}
	return d.settings.Own(netip.AddrPortFrom(client, n))
}

// address parses client_address, which is the same for many requests. For "unknown" it returns
// the zero address.
func (d *delegation) address(text []byte) netip.Addr {
	if d.clientText != string(text) {
		d.clientText = string(text)
		d.client, _ = netip.ParseAddr(d.clientText)
		d.client = d.client.WithZone("").Unmap()
	}
	return d.client
}
