package session

import (
	"context"
	"errors"
	"os"

	"blockd/policy"
	"blockd/smtpfilter/wire"
)

// What an allow entry may need for it to count (docs/auth.md) is looked for in two
// phases: what login and SPF prove, before RCPT is answered; what only the message
// proves, at its end (late.go).

// origin is where the transaction comes from.
func (s *session) origin() policy.Origin {
	return policy.Origin{Client: s.client.Addr(), Helo: s.helo, Authenticated: s.authenticated}
}

// prove looks for the proofs that can be had before the message, if one could help a
// recipient whose sender is blocked; "" is all recipients. What was found is kept
// for those that follow. It reports whether the transaction is still there; if not,
// the command is answered.
func (s *session) prove(recipient string) bool {
	if len(s.tx.verdict.Matches) == 0 { // of nearly all mail
		return true
	}
	if !s.checker.Asks(s.tx.verdict, recipient) {
		s.tx.verdict = s.checker.ProveOrigin(s.hard, s.tx.verdict, recipient, s.origin())
		return true
	}
	if !s.settle() || !s.standing() {
		return false
	}
	s.flush()
	gone := s.attend(func(ctx context.Context) {
		s.tx.verdict = s.checker.ProveOrigin(ctx, s.tx.verdict, recipient, s.origin())
	})
	switch {
	case gone:
		s.finished = true
	case s.hard.Err() != nil:
		s.timeout()
	}
	return !s.finished
}

// attend does what may wait for others than the client. The context of work ends with
// the session's time, and as soon as the client goes away, which attend then
// reports. One who has sent commands ahead is not watched: it has more to say, and
// its going away would be behind that.
func (s *session) attend(work func(context.Context)) (gone bool) {
	ctx, cancel := context.WithCancel(s.hard)
	defer cancel()
	if s.in.Ready() || len(s.in.Buffered()) >= wire.MaxLine {
		work(ctx)
		return false
	}
	s.deadlines.arm(s.conn, s.settings.Limits.Session)
	lost, watched := false, make(chan struct{})
	go func() {
		defer close(watched)
		for !s.in.Ready() && len(s.in.Buffered()) < wire.MaxLine {
			if err := s.in.Fill(); err != nil {
				if lost = !errors.Is(err, os.ErrDeadlineExceeded); lost {
					cancel()
				}
				return
			}
		}
	}()
	defer func() { // also behind a panic: the client's reader must be ours again
		s.conn.SetReadDeadline(past())
		<-watched
		gone = lost
	}()
	work(ctx)
	return false // or what the watch has seen
}

// refusedAtMail is the refusal of a sender where that is given at MAIL; the zero
// Decision if there is none, or none before the message.
func (s *session) refusedAtMail() policy.Decision {
	if s.fateOf("").late() {
		return policy.Decision{}
	}
	if d := s.checker.Recipient(s.tx.verdict, ""); d.Outcome == policy.Refuse || d.Outcome == policy.Defer {
		return d
	}
	return policy.Decision{}
}
