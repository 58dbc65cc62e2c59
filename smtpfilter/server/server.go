// Package server is the SMTP filter's outside: it listens, bounds how many
// clients are served at once, watches upstream, and stops without cutting a
// transaction. What happens within a session is package session's.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/smtpfilter/upstream"
)

// Settings of a Server. A zero field takes the default named beside it.
type Settings struct {
	Hostname       string // in replies given before a session exists
	MaxConnections int    // 4,096 at once, over all listeners
	MaxPerClient   int    // 50 at once from one IPv4 address or IPv6 /64; loopback is no exception

	// AllowOpenUpstream leaves the open-relay self-test out, for sinks and for
	// servers that take any recipient on purpose. It is logged at every start.
	AllowOpenUpstream bool

	// StopTimeout bounds the wait for sessions after ctx has ended; those that
	// are left are closed. 12 min: a session needs at most 1 min to its dot and
	// 10 min from there, and ends on its own.
	StopTimeout time.Duration
}

// Run serves one session on conn and closes it; it is (*session.Relay).Run.
type Run func(ctx context.Context, conn net.Conn, client netip.AddrPort)

// Server accepts clients and runs a session for each. It is safe for concurrent use.
type Server struct {
	set     Settings
	run     Run
	up      *upstream.Dialer
	metrics *metrics
	log     *slog.Logger
	clients *clients
	watch   *watch

	refusing chan struct{} // a slot for each refusal that is being written
	sessions sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]struct{} // of the sessions, for the end of StopTimeout
	serving  atomic.Bool
}

// maxRefusing bounds the goroutines that tell clients why they are not served.
// Beyond it a connection is closed without a word: a flood gets no answer.
const maxRefusing = 256

// New returns a Server that does not listen yet. Unless s.AllowOpenUpstream is
// set, up gives no session to a client before upstream has passed the open-relay
// self-test, where that has a meaning (see upstream.Dialer.CanRelay).
func New(s Settings, run Run, up *upstream.Dialer, reg prometheus.Registerer, log *slog.Logger) *Server {
	s.MaxConnections = cmp.Or(s.MaxConnections, 4096)
	s.MaxPerClient = cmp.Or(s.MaxPerClient, 50)
	s.StopTimeout = cmp.Or(s.StopTimeout, 12*time.Minute)
	srv := &Server{
		set:      s,
		run:      run,
		up:       up,
		log:      log,
		clients:  newClients(s.MaxConnections, s.MaxPerClient),
		refusing: make(chan struct{}, maxRefusing),
		open:     map[net.Conn]struct{}{},
	}
	srv.metrics = newMetrics(reg, srv.clients.count)
	srv.watch = newWatch(up, up.CanRelay() && !s.AllowOpenUpstream, srv.metrics, log)
	return srv
}

// Listen opens a listener for each address, "HOST:PORT", or none and says why.
func Listen(ctx context.Context, addresses ...string) ([]net.Listener, error) {
	var lc net.ListenConfig
	var listeners []net.Listener
	for _, a := range addresses {
		l, err := lc.Listen(ctx, "tcp", a)
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, err // of the form "listen tcp 127.0.0.1:25: …"
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// Serve accepts clients on the listeners, from Listen or from elsewhere (socket
// activation, say), until ctx ends, and watches upstream meanwhile. Then it
// closes the listeners, waits until the sessions have drained, for StopTimeout
// at the most, and returns nil. It is called once.
//
// It does not start, and returns an error, if upstream is one of the listeners.
// An upstream that is not reachable is no error: clients are told to come again.
// A listener that fails for good stops the Server like the end of ctx, and Serve
// returns its error.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	if s.serving.Swap(true) {
		return errors.New("smtp server: Serve called twice")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	closeAll := func() {
		for _, l := range listeners {
			l.Close()
		}
	}
	s.watch.listen = addresses(listeners)
	if err := s.up.CheckListeners(ctx, s.watch.listen); errors.Is(err, upstream.ErrOwnListener) {
		closeAll()
		return err
	}
	if s.set.AllowOpenUpstream && s.up.CanRelay() {
		s.log.Warn("open-relay self-test of upstream is switched off")
	}
	var loops sync.WaitGroup
	loops.Go(func() { s.watch.run(ctx) })
	for _, l := range listeners {
		s.log.Info("smtp listens", slog.String("address", l.Addr().String()))
		loops.Go(func() {
			if err := s.accept(ctx, l); err != nil {
				cancel(err)
			}
		})
	}
	<-ctx.Done()
	closeAll()
	loops.Wait()
	s.drain()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func addresses(listeners []net.Listener) []net.Addr {
	addrs := make([]net.Addr, len(listeners))
	for i, l := range listeners {
		addrs[i] = l.Addr()
	}
	return addrs
}

// accept starts a session for each client until ctx ends. Errors such as a lack
// of file descriptors pass, so they are waited out, at most 1 s at a time.
func (s *Server) accept(ctx context.Context, l net.Listener) error {
	delay := time.Duration(0)
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			delay = 0
			s.admit(ctx, conn)
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("smtp: %w", err)
		}
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		s.metrics.acceptErrors.Inc()
		s.log.Error("smtp accept failed", slog.Any("error", err), slog.Duration("retry", delay))
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil
		}
	}
}

// admit starts a session or a refusal. It never waits for the client.
func (s *Server) admit(ctx context.Context, conn net.Conn) {
	client := clientAddr(conn)
	if errors.Is(s.watch.status().Err, upstream.ErrOpenRelay) {
		s.refuse(conn, "open-relay", "421 4.3.0 "+s.set.Hostname+" Service not available, try again later")
		return
	}
	switch s.clients.enter(client.Addr()) {
	case overTotal:
		s.refuse(conn, "total", "421 4.7.0 "+s.set.Hostname+" Too many connections, try again later")
		return
	case overClient:
		s.refuse(conn, "client", "421 4.7.0 "+s.set.Hostname+" Too many connections from your address")
		return
	}
	s.mu.Lock()
	s.open[conn] = struct{}{}
	s.mu.Unlock()
	s.sessions.Go(func() {
		defer func() {
			conn.Close() // a second time, if all went well
			s.mu.Lock()
			delete(s.open, conn)
			s.mu.Unlock()
			s.clients.leave(client.Addr())
		}()
		s.run(ctx, conn, client)
	})
}

// refuse says why and closes, all within 1 s, without keeping the caller. After
// the line it reads for a moment what the client has sent: to close a socket
// with unread input resets the connection, and the line would be lost.
func (s *Server) refuse(conn net.Conn, why, line string) {
	s.metrics.refused.WithLabelValues(why).Inc()
	select {
	case s.refusing <- struct{}{}:
	default:
		conn.Close()
		return
	}
	s.sessions.Go(func() {
		defer func() {
			conn.Close()
			<-s.refusing
		}()
		conn.SetDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write([]byte(line + "\r\n")); err != nil {
			return
		}
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
		buf := make([]byte, 512)
		for range 8 {
			if _, err := conn.Read(buf); err != nil {
				return
			}
		}
	})
}

// drain waits for the sessions, which have seen the end of ctx.
func (s *Server) drain() {
	timer := time.AfterFunc(s.set.StopTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log.Error("smtp sessions closed, the time to stop is over", slog.Int("sessions", len(s.open)))
		for conn := range s.open {
			conn.Close()
		}
	})
	defer timer.Stop()
	s.sessions.Wait()
}

// clientAddr returns the address of conn's other end; zero if it is not TCP.
func clientAddr(conn net.Conn) netip.AddrPort {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	a := tcp.AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
