package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Session is one connection that a Server has admitted.
type Session interface {
	// Run answers until the peer, a fault or Stop ends the session. Then it closes the connection.
	Run()
	// Stop ends the session after its pending requests. Any goroutine may call it, at any time.
	Stop()
}

// Server admits the connections of one door, and ends them together. The fields are set
// before Serve, which is called once.
type Server struct {
	Name           string // of the door, in the log
	Log            *slog.Logger
	AllowFrom      []netip.Prefix // peers that may connect by TCP; a Unix socket is protected by its mode
	MaxConnections int            // open connections at once
	StopTimeout    time.Duration  // from Stop until a session's connection is closed in spite of it

	Strangers *Strangers // remembers the peers that are in no network of AllowFrom; may be nil

	// Open makes the session of an admitted connection.
	Open func(net.Conn) Session
	// TurnAway is told why a connection is refused, "peer" (not in AllowFrom) or "total" (over
	// MaxConnections), before the connection is closed. It must not wait for the peer.
	TurnAway func(conn net.Conn, why string)

	Connections  prometheus.Gauge   // open now
	AcceptErrors prometheus.Counter // such as no file descriptors left

	mu       sync.Mutex
	open     map[Session]net.Conn
	sessions sync.WaitGroup
	refusals *CalmLog
}

// Serve serves peers on the listeners until ctx ends. Pending requests are then answered,
// every connection is closed, and Serve returns nil. A listener that fails for good has the
// same effect, and Serve returns its error.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	s.open, s.refusals = map[Session]net.Conn{}, NewCalmLog(s.Log)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var loops sync.WaitGroup
	for _, l := range listeners {
		s.Log.Info(s.Name+" listens", slog.String("address", l.Addr().String()))
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
		nc, err := Accept(l, ctx.Done(), func(err error, retry time.Duration) {
			s.AcceptErrors.Inc()
			s.Log.Error(s.Name+" accept failed", slog.Any("error", err), slog.Duration("retry", retry))
		})
		switch {
		case err == nil:
			s.admit(nc)
		case ctx.Err() != nil:
			return nil
		default:
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
}

// admit serves a connection, or closes it.
func (s *Server) admit(nc net.Conn) {
	session, why := s.enter(nc)
	if why != "" { // counted before the close, so that a peer that sees the end finds it counted
		s.TurnAway(nc, why)
		if why == "peer" && s.Strangers != nil {
			s.Strangers.TurnedAway(nc.RemoteAddr())
		} else {
			s.refusals.Warn(s.Name+" connection refused", slog.String("peer", nc.RemoteAddr().String()), slog.String("why", why))
		}
		nc.Close()
		return
	}
	s.sessions.Go(func() {
		defer func() {
			s.mu.Lock()
			delete(s.open, session)
			s.mu.Unlock()
			s.Connections.Dec()
		}()
		session.Run()
	})
}

// enter makes the session of a connection, or says why it may not have one.
func (s *Server) enter(nc net.Conn) (session Session, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !Admits(s.AllowFrom, nc.RemoteAddr()):
		return nil, "peer"
	case len(s.open) >= s.MaxConnections:
		return nil, "total"
	}
	session = s.Open(nc)
	s.open[session] = nc
	s.Connections.Inc()
	return session, ""
}

// drain ends every session after its pending requests.
func (s *Server) drain() {
	s.mu.Lock()
	for session := range s.open {
		session.Stop()
	}
	s.mu.Unlock()
	timer := time.AfterFunc(s.StopTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, nc := range s.open {
			nc.Close()
		}
	})
	defer timer.Stop()
	s.sessions.Wait()
}
