// Package server is the SMTP filter's outside. It listens, identifies
// clients, bounds how many are served at once, does their TLS, watches upstream, and
// stops without cutting a transaction. Package session serves one session.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/listener"
	"blockd/smtpfilter/upstream"
)

// Settings of a Server. A zero field takes the default named beside it.
type Settings struct {
	Hostname       string // in replies given before a session exists
	MaxConnections int    // 4,096 at once, over all listeners
	MaxPerClient   int    // 50 at once from one IPv4 address or IPv6 /64; loopback is no exception
	MaxRate        int    // 0 = any: new connections a minute from such a client

	// Proxies are the networks of load balancers. Connections from there begin
	// with a PROXY header, of version 1 or 2. Without one they are closed.
	Proxies      []netip.Prefix
	ProxyTimeout time.Duration // 5 s for the header

	TLS        *tls.Config   // for StartTLS and Implicit listeners; nil = no TLS
	TLSTimeout time.Duration // 10 s for a handshake

	// AllowOpenUpstream omits the open-relay self-test, for sinks and for
	// servers that take any recipient on purpose. It is logged at every start.
	AllowOpenUpstream bool

	// StopTimeout bounds the wait for sessions after ctx has ended. Remaining
	// sessions are closed. 12 min: a session needs at most 1 min to its dot and
	// 10 min from there, and ends on its own.
	StopTimeout time.Duration
}

// Run serves one session on conn and closes it; it is (*session.Relay).Run.
type Run func(ctx context.Context, conn net.Conn, client netip.AddrPort)

// Server accepts clients and runs a session for each. It is safe for concurrent use.
type Server struct {
	set     Settings
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
// Beyond it a connection is closed without a reply: a flood gets no answer.
const maxRefusing = 256

// New returns a Server that does not listen yet. Unless s.AllowOpenUpstream is
// set, up gives no session to a client before upstream has passed the open-relay
// self-test, if that has a meaning (see upstream.Dialer.CanRelay).
func New(s Settings, up *upstream.Dialer, reg prometheus.Registerer, log *slog.Logger) *Server {
	s.MaxConnections = cmp.Or(s.MaxConnections, 4096)
	s.MaxPerClient = cmp.Or(s.MaxPerClient, 50)
	s.ProxyTimeout = cmp.Or(s.ProxyTimeout, 5*time.Second)
	s.TLSTimeout = cmp.Or(s.TLSTimeout, 10*time.Second)
	s.StopTimeout = cmp.Or(s.StopTimeout, 12*time.Minute)
	srv := &Server{
		set:      s,
		up:       up,
		log:      log,
		clients:  newClients(s.MaxConnections, s.MaxPerClient, s.MaxRate),
		refusing: make(chan struct{}, maxRefusing),
		open:     map[net.Conn]struct{}{},
	}
	srv.metrics = newMetrics(reg, srv.clients.open)
	srv.watch = newWatch(up, up.CanRelay() && !s.AllowOpenUpstream, srv.metrics, log)
	return srv
}

// Sessions returns how many clients are served now.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Crowded reports whether 80 % of MaxConnections are open. Silent clients then get
// shorter deadlines.
func (s *Server) Crowded() bool { return s.clients.crowded() }

// Serve accepts clients on the listeners until ctx ends. It lets run serve each client, and watches
// upstream meanwhile. Then it closes the listeners, waits until the sessions have
// drained, for StopTimeout at the most, and returns nil. It is called once.
//
// It does not start, and returns an error, if upstream is one of the listeners.
// An unreachable upstream is no error: clients are asked to come again.
// A listener that fails for good stops the Server like the end of ctx, and Serve
// returns its error.
func (s *Server) Serve(ctx context.Context, run Run, listeners ...net.Listener) error {
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
			if err := s.accept(ctx, run, l); err != nil {
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

// accept starts a session for each client until ctx ends.
func (s *Server) accept(ctx context.Context, run Run, l net.Listener) error {
	_, overTLS := l.(implicit)
	for {
		conn, err := listener.Accept(l, ctx.Done(), func(err error, retry time.Duration) {
			s.metrics.acceptErrors.Inc()
			s.log.Error("smtp accept failed", slog.Any("error", err), slog.Duration("retry", retry))
		})
		switch {
		case err == nil:
			s.admit(ctx, run, conn, overTLS)
		case ctx.Err() != nil:
			return nil
		default:
			return fmt.Errorf("smtp: %w", err)
		}
	}
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
