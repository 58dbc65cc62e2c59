package session

import (
	"bytes"
	"context"
	"errors"
	"os"

	"blockd/smtpfilter/wire"
)

// prove asks DNS for what can be proved before the message and could help a recipient
// whose sender is blocked; "" is all recipients. It returns line as consult does.
func (s *session) prove(line []byte, recipient string) []byte {
	if !s.rules.Asks(recipient) {
		return line
	}
	return s.consult(line, func(ctx context.Context) { s.rules.Prove(ctx, recipient) })
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
// reports. No slice of the client's reader outlasts that. A client that has sent commands
// ahead is not watched: they come before its going away.
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
	defer func() { // also after a panic: the client's reader must be ours again
		s.conn.SetReadDeadline(past())
		<-watched
		s.deadlines.setClient(s.conn) // with a deadline that it does not know
		gone = lost
	}()
	work(ctx)
	return false // or what the watch has seen
}
