package session

import (
	"bytes"
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
// for those that follow. It returns line as consult does.
func (s *session) prove(line []byte, recipient string) []byte {
	if len(s.tx.verdict.Matches) == 0 { // of nearly all mail
		return line
	}
	if !s.checker.Asks(s.tx.verdict, recipient) {
		s.tx.verdict = s.checker.ProveOrigin(s.hard, s.tx.verdict, recipient, s.origin())
		return line
	}
	return s.consult(line, func(ctx context.Context) {
		s.tx.verdict = s.checker.ProveOrigin(ctx, s.tx.verdict, recipient, s.origin())
	})
}

// consult does what waits for DNS before a command can be answered. It returns line,
// that of the command, which holds like the one given even though the client may have
// been read meanwhile. nil says that the transaction is not there any more; the command
// is then answered.
func (s *session) consult(line []byte, ask func(context.Context)) []byte {
	if !s.settle() || !s.standing() {
		return nil
	}
	s.flush()
	line = bytes.Clone(line) // attend reads on into the buffer that it is in
	gone := s.attend(ask)
	switch {
	case gone:
		s.finished = true
	case s.hard.Err() != nil:
		s.timeout()
	}
	if s.finished {
		return nil
	}
	return line
}

// attend does what may wait for others than the client. The context of work ends with
// the session's time, and as soon as the client goes away, which attend then
// reports. No slice of the client's reader outlasts that. One who has sent commands
// ahead is not watched: it has more to say, and its going away would be behind that.
func (s *session) attend(work func(context.Context)) (gone bool) {
	ctx, cancel := context.WithCancel(s.hard)
	defer cancel()
	if s.in.Ready() || len(s.in.Buffered()) >= wire.MaxLine {
		work(ctx)
		return false
	}
	s.deadlines.armClient(s.settings.Limits.Session)
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
		s.deadlines.setClient(s.conn) // with a deadline that it does not know
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
