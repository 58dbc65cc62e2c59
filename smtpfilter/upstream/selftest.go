package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Errors of SelfTest, and of Open after RequireSelfTest.
var (
	// ErrOpenRelay reports that upstream takes mail for any recipient from the clients
	// that blockd presents to it.
	ErrOpenRelay = errors.New("upstream is an open relay for blockd's clients")

	// ErrUntested reports that SelfTest has not had an answer yet.
	ErrUntested = errors.New("upstream has not passed the open-relay test yet")

	// ErrUndecided reports that upstream has refused the self-test, but not for
	// relaying. Whether it would relay is unknown. See
	// UndecidedError.
	ErrUndecided = errors.New("the open-relay test has no answer")
)

// UndecidedError is an ErrUndecided with its reason and its cure.
type UndecidedError struct {
	Refused *RefusedError
	object  refusal
	chosen  bool // the recipient is the operator's choice
}

func (e *UndecidedError) Unwrap() []error { return []error{ErrUndecided, e.Refused} }

func (e *UndecidedError) Error() string {
	return fmt.Sprintf("%v: %s: %v; %s", ErrUndecided, e.Reason(), e.Refused, e.Hint())
}

// Reason returns what upstream has refused, in a few words.
func (e *UndecidedError) Reason() string {
	if e.Refused.Stage == "MAIL" {
		return "upstream refuses the test's MAIL"
	}
	switch e.object {
	case refusesDomain:
		return "upstream refuses the test's recipient or its domain, and says nothing about relaying"
	case refusesClient:
		return "upstream refuses the test's client"
	case refusesHelo:
		return "upstream refuses the test's HELO"
	case refusesSender:
		return "upstream refuses the test's sender"
	case refusesForNow:
		return "upstream puts the test off"
	}
	return "upstream's refusal says nothing about relaying"
}

// Hint returns what an operator can do.
func (e *UndecidedError) Hint() string {
	const past = "it must let the test's client " + selfTestClient + " (with HELO [" + selfTestClient + "] and an empty sender) past that rule (docs/postfix.md)"
	switch {
	case e.Refused.Stage != "RCPT", e.object == refusesClient, e.object == refusesHelo, e.object == refusesSender:
		return past
	case e.object == refusesForNow && e.chosen:
		return "the test is repeated each minute; if this stays, " + past
	case e.object == refusesForNow:
		return "the test is repeated each minute; if this stays, set smtp.selftest_recipient to an address whose domain resolves in DNS and is not yours, or " + past
	case e.chosen:
		return "smtp.selftest_recipient must be an address that exists, whose domain resolves in DNS and is not yours"
	}
	return "set smtp.selftest_recipient to an address that exists, whose domain resolves in DNS and is not yours"
}

// CanRelay reports whether upstream could relay to strangers, so that the
// self-test has a meaning: a server that speaks SMTP, and not the embedded mailbox.
func (d *Dialer) CanRelay() bool { return d.set.Protocol == SMTP && d.set.Dial == nil }

// RequireSelfTest makes Open fail with ErrUntested until SelfTest has passed, and
// with ErrOpenRelay while that is the last answer. Probe works all the same.
func (d *Dialer) RequireSelfTest() { d.setGate(ErrUntested) }

func (d *Dialer) setGate(err error) { d.gate.Store(&err) }

// The client and the envelope of the self-test. The address is reserved for
// documentation (RFC 5737); as HELO it needs no DNS. The null reverse-path has no
// domain to be refused for. The recipient's domain is reserved and never exists
// (RFC 2606), so no server is responsible for it.
const (
	selfTestClient    = "203.0.113.9"
	selfTestSender    = "MAIL FROM:<>"
	selfTestRecipient = "blockd-selftest@selftest.invalid"
)

// SelfTest finds out whether upstream would relay for a stranger. It presents a
// client at a documentation address in the configured way. It offers a recipient that
// upstream is not responsible for: Settings.SelfTestRecipient, or one whose
// domain does not exist. It sends no mail.
//
// The error is ErrOpenRelay for any reply to that recipient but a 4xx or 5xx, and nil for
// a reply that denies relaying. Any other refusal, of the recipient's domain, the client,
// its HELO, the sender, or of MAIL, is an *UndecidedError. Such servers are common and
// must be served, so mail passes unless the last answer was ErrOpenRelay. Ask again. All
// other errors mean that there was no answer. The last answer, if
// any, stays in force.
//
// If CanRelay is false the test says nothing: LMTP and the embedded mailbox
// take any recipient and relay none. A server that accepts every recipient and
// refuses at DATA, or accepts on purpose, fails the test. One that relays only to some
// domains or for some clients may pass: the test asks one question.
func (d *Dialer) SelfTest(ctx context.Context) error {
	err := d.offerStranger(ctx)
	gate := d.gate.Load()
	switch {
	case gate == nil:
	case err == nil || errors.Is(err, ErrOpenRelay):
		d.setGate(err)
	case errors.Is(err, ErrUndecided) && errors.Is(*gate, ErrUntested):
		d.setGate(nil)
	}
	return err
}

// offerStranger is SelfTest without its effect on Open.
func (d *Dialer) offerStranger(ctx context.Context) error {
	to, chosen := d.set.SelfTestRecipient, true
	if to == "" {
		to, chosen = selfTestRecipient, false
	}
	conn, err := d.open(ctx, Client{
		Addr:  netip.AddrPortFrom(netip.MustParseAddr(selfTestClient), 25),
		Helo:  "[" + selfTestClient + "]",
		ESMTP: true,
	})
	if err != nil {
		return undecided(err, chosen)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	if _, err = d.expect(conn, "MAIL", selfTestSender, 250); err != nil {
		return undecided(err, chosen)
	}
	reply, err := conn.command("RCPT TO:<"+to+">", d.set.ReplyTimeout)
	switch {
	case err != nil:
		return fmt.Errorf("upstream: RCPT: %w", err)
	case reply.Code < 400:
		err = ErrOpenRelay
	default:
		refused := &RefusedError{Stage: "RCPT", Reply: reply}
		if reply.Code == 421 { // upstream goes away, and says nothing about the recipient
			return refused
		}
		if object := refusalOf(reply, chosen); object != refusesRelay {
			err = &UndecidedError{refused, object, chosen}
		}
	}
	conn.command("RSET", d.set.ReplyTimeout) // QUIT undoes the transaction as well
	conn.quit()
	return err
}

// undecided makes a refusal before RCPT an UndecidedError: of MAIL, and of the test's
// client when it connects. A 421, and a 4xx to a connection without a policy code (4.7.x),
// are about upstream and not about the client.
func undecided(err error, chosen bool) error {
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Reply.Code == 421 || refused.Stage == "STARTTLS" {
		return err
	}
	enhanced, _ := refusalWords(string(refused.Reply.Raw))
	if refused.Stage != "MAIL" && refused.Reply.Code < 500 && !strings.HasPrefix(enhanced, "4.7.") {
		return err
	}
	return &UndecidedError{refused, refusesClient, chosen}
}
