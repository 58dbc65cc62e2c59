package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// Errors of SelfTest, and of Open after RequireSelfTest.
var (
	// ErrOpenRelay reports that upstream takes mail for anybody from the clients
	// that blockd presents to it.
	ErrOpenRelay = errors.New("upstream is an open relay for blockd's clients")

	// ErrUntested reports that SelfTest has not had an answer yet.
	ErrUntested = errors.New("upstream has not passed the open-relay test yet")

	// ErrUndecided reports that upstream has put the self-test's recipient off.
	// It may be greylisting, or unable to resolve the domain just now, and then
	// nobody knows what it would do with a domain that exists.
	ErrUndecided = errors.New("upstream deferred the open-relay test's recipient")
)

// CanRelay reports whether upstream could relay to strangers, so that the
// self-test has a meaning: a server spoken to by SMTP, and not the embedded mailbox.
func (d *Dialer) CanRelay() bool { return d.set.Protocol == SMTP && d.set.Dial == nil }

// RequireSelfTest makes Open fail with ErrUntested until SelfTest has passed, and
// with ErrOpenRelay while its last answer is that. Probe works all the same.
func (d *Dialer) RequireSelfTest() { d.setGate(ErrUntested) }

func (d *Dialer) setGate(err error) { d.gate.Store(&err) }

// The envelope of the self-test. The null reverse-path is never refused for its
// domain's sake, which would hide an open relay behind it; the recipient's
// domain is reserved to exist nowhere (RFC 2606), so no server is its home.
const (
	selfTestSender    = "MAIL FROM:<>"
	selfTestRecipient = "RCPT TO:<blockd-selftest@selftest.invalid>"
)

// SelfTest finds out whether upstream would relay for a stranger: it presents a
// client at a documentation address (RFC 5737) the configured way and offers a
// recipient that upstream cannot be responsible for. No mail is sent.
//
// ErrOpenRelay is any reply to that recipient but a 4xx or 5xx; nil is a 5xx to
// it or to MAIL, or 454, with which Postfix denies to relay. Any other 4xx is
// ErrUndecided: mail passes, unless the last answer was ErrOpenRelay, because a
// server that always defers unknown domains is common and must be served; ask
// again. All other errors mean that the question has no answer, and the last
// answer, if any, stays in force.
//
// Where CanRelay is false the test says nothing: LMTP and the embedded mailbox
// take any recipient and relay none. A server that accepts every recipient and
// refuses at DATA, or accepts on purpose, fails it; one that refuses unknown
// recipient domains passes without having been asked the real question.
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

// offerStranger is SelfTest without its consequence.
func (d *Dialer) offerStranger(ctx context.Context) error {
	conn, err := d.open(ctx, Client{
		Addr:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, 9}), 25),
		Helo:  "selftest.invalid",
		ESMTP: true,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	var refused *RefusedError
	_, err = d.expect(conn, "MAIL", selfTestSender, 250)
	switch {
	case errors.As(err, &refused) && refused.Reply.Code >= 500:
		return nil
	case err != nil:
		return err
	}
	reply, err := conn.command(selfTestRecipient, d.set.ReplyTimeout)
	switch {
	case err != nil:
		return fmt.Errorf("upstream: RCPT: %w", err)
	case reply.Code == 421: // goes away, and says nothing about the recipient
		return &RefusedError{Stage: "RCPT", Reply: reply}
	case reply.Code < 400:
		err = ErrOpenRelay
	case reply.Code < 500 && reply.Code != 454:
		err = fmt.Errorf("%w: %w", ErrUndecided, &RefusedError{Stage: "RCPT", Reply: reply})
	}
	conn.command("RSET", d.set.ReplyTimeout) // QUIT undoes the transaction as well
	conn.quit()
	return err
}
