package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// settled is within how long further notifications are the same hint.
const settled = time.Millisecond

// Wait returns when the channel was notified, or with the context. A connection that is lost is made again by the next
// call, which comes after a poll: there may be one poll too many, but never one after the other.
func (s *Source) Wait(ctx context.Context) error {
	if s.options.Notify == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	if s.hints == nil {
		conn, err := s.listen(ctx)
		if err == nil {
			s.hints = conn
			return nil // nothing has told of what came before
		}
	} else if s.hints.WaitForNotification(ctx) == nil {
		s.drain(ctx)
		return nil
	} else if ctx.Err() == nil || s.hints.IsClosed() {
		s.hints = hangUp(s.hints)
	}
	<-ctx.Done()
	return ctx.Err()
}

// drain takes the notifications that have come already. One poll answers all of them.
func (s *Source) drain(ctx context.Context) {
	for err := error(nil); err == nil; {
		soon, cancel := context.WithTimeout(ctx, settled)
		err = s.hints.WaitForNotification(soon)
		cancel()
	}
}

func (s *Source) listen(ctx context.Context) (*pgconn.PgConn, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := execute(ctx, conn, "listen "+quoted(s.options.Notify)); err != nil {
		return hangUp(conn), err
	}
	return conn, nil
}
