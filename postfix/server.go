package postfix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"blockd/listener"
)

// Server serves one protocol. Its methods are safe for concurrent use. Serve is called once.
type Server struct {
	service
	speak func(*service) dialect

	mu       sync.Mutex
	open     map[*conn]struct{}
	sessions sync.WaitGroup
	refusals *listener.CalmLog
}

// stopTimeout bounds a stop: a request that has begun may take requestTime to arrive whole,
// and its answer writeTime to be read.
const stopTimeout = requestTime + writeTime + 5*time.Second

// Serve answers peers on the listeners until ctx ends. It still answers the pending
// requests. Then it closes every connection and returns nil. A
// listener that fails for good has the same effect, and Serve returns its error.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var loops sync.WaitGroup
	for _, l := range listeners {
		s.log.Info(s.door.Name+" listens", slog.String("address", l.Addr().String()))
		loops.Go(func() {
			if err := s.accept(ctx, l); err != nil {
				cancel(err)
			}
		})
	}
	<-ctx.Done()
	for _, l := range listeners {
		l.Close()
	}
	loops.Wait()
	s.drain()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// accept serves every connection until ctx ends.
func (s *Server) accept(ctx context.Context, l net.Listener) error {
	for {
		nc, err := listener.Accept(l, ctx.Done(), func(err error, retry time.Duration) {
			s.metrics.acceptErrors.Inc()
			s.log.Error(s.door.Name+" accept failed", slog.Any("error", err), slog.Duration("retry", retry))
		})
		switch {
		case err == nil:
			s.admit(nc)
		case ctx.Err() != nil:
			return nil
		default:
			return fmt.Errorf("%s: %w", s.door.Name, err)
		}
	}
}

// admit serves a connection, or closes it before it reads a request. Postfix then follows its
// own default action.
func (s *Server) admit(nc net.Conn) {
	why := ""
	c := newConn(&s.service, s.speak(&s.service), nc)
	s.mu.Lock()
	switch {
	case !listener.Admits(s.settings.AllowFrom, nc.RemoteAddr()):
		why = "peer"
	case len(s.open) >= s.settings.MaxConnections:
		why = "total"
	default:
		s.open[c] = struct{}{}
		s.metrics.connections.Inc()
	}
	s.mu.Unlock()
	if why != "" { // counted before the close, so that a peer that sees the end finds it counted
		s.metrics.refused.WithLabelValues(s.door.Name, why).Inc()
		s.refusals.Warn(s.door.Name+" connection refused", slog.String("peer", nc.RemoteAddr().String()), slog.String("why", why))
		nc.Close()
		return
	}
	s.sessions.Go(func() {
		defer func() {
			s.mu.Lock()
			delete(s.open, c)
			s.mu.Unlock()
			s.metrics.connections.Dec()
		}()
		c.serve()
	})
}

// drain ends every connection after its pending requests.
func (s *Server) drain() {
	s.mu.Lock()
	for c := range s.open {
		c.stop()
	}
	s.mu.Unlock()
	timer := time.AfterFunc(stopTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.open {
			c.conn.Close()
		}
	})
	defer timer.Stop()
	s.sessions.Wait()
}
