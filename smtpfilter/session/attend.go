package session

import (
	"bytes"
	"context"
	"errors"
	"os"

	"blockd/smtpfilter/wire"
)

// prove looks for proof that DNS can give before the message comes, if it could help a
// recipient of a blocked sender. recipient "" means all recipients. It returns line as consult
// does.
func (s *session) prove(line []byte, recipient string) []byte {
	if !s.rules.Asks(recipient) {
		return line
	}
	return s.consult(line, func(ctx context.Context) { s.rules.Prove(ctx, recipient) })
}

// consult runs ask, which may wait for DNS, before a command is answered. It returns the
// command's line, which stays valid as before, although more may have been read from the
// client meanwhile. It returns nil if the transaction or the session has ended; the command is
// then answered.
func (s *session) consult(line []byte, ask func(context.Context)) []byte {
	if !s.answerQueue() || !s.transactionOpen() {
		return nil
	}
	s.flush()
	line = bytes.Clone(line) // attend reads into the buffer that holds line
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

// attend runs work, which may wait for others than the client. The context of work ends with
// the session's time, and as soon as the client disconnects; attend then returns true. Slices
// of the client's reader are invalid afterwards. If the client has sent commands ahead, attend
// does not watch it: those commands come before any end of the connection.
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
	defer func() { // also after a panic: only one goroutine may use the client's reader
		s.conn.SetReadDeadline(past())
		<-watched
		s.deadlines.setClient(s.conn) // forget the recorded deadline, which is no longer the one set
		gone = lost
	}()
	work(ctx)
	return false // the deferred function sets the result
}
