package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// ErrOpenRelay reports that upstream takes mail for anybody from the clients
// that blockd presents to it.
var ErrOpenRelay = errors.New("upstream is an open relay for blockd's clients")

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
// ErrOpenRelay is a 2xx to that recipient, nil any refusal of it or a 5xx to
// MAIL; all other errors mean that the question has no answer yet.
//
// It is not for LMTP and not for an embedded mailbox, which take any recipient
// and relay nothing; the caller leaves it out there. A server that accepts every
// recipient and refuses at DATA, or on purpose, fails the test.
// A server that refuses unknown recipient domains passes it unexamined.
func (d *Dialer) SelfTest(ctx context.Context) error {
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
	}
	conn.command("RSET", d.set.ReplyTimeout) // QUIT undoes the transaction as well
	conn.quit()
	return err
}
