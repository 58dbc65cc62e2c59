// Package milter is the milter door, for Postfix and Sendmail. A mail server asks blockd about
// each sender by the milter protocol and does what blockd answers. Postfix and Sendmail keep
// their place in front of the network.
//
// The library github.com/d--j/go-milter speaks the protocol. It trusts its peers, so
// connections checks them, and every packet, before the library sees any. A clear sender costs
// one round trip: blockd accepts the message at MAIL, and the mail server asks no more about
// it. For other senders blockd answers each recipient.
package milter

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

	"github.com/d--j/go-milter"
	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/listener"
	"blockd/mail/spool"
	"blockd/policy"
	"blockd/policy/rule"
)

// Settings configure a Server. A zero field means the default that its comment names.
type Settings struct {
	RejectAt          string         // "rcpt" (also "") or "mail": the command at which a listed sender is refused
	ClientRejectAt    string         // "rcpt" (also "") or "connect": the event at which a listed client is refused
	SkipAuthenticated bool           // senders of clients that have authenticated are not looked up
	Trusted           []netip.Prefix // SMTP clients in these networks are never checked

	// Own reports whether an SMTP client, by its address and port, is this program, which sends its own mail: that is not checked.
	// It is asked at MAIL. nil: none is.
	Own func(client netip.AddrPort) bool

	OnError rule.OnError // the answer to an event if blockd itself fails

	AllowFrom      []netip.Prefix      // mail servers that may connect by TCP; nil means loopback
	Strangers      *listener.Strangers // remembers those that are in no network of AllowFrom; may be nil
	MaxConnections int                 // 1,024; open connections of all listeners together

	// Results is the name that the filter writes into Authentication-Results fields (RFC 8601,
	// section 2.2). The filter writes such a field if it looked for proof of the sender, and
	// removes fields of incoming messages that carry this name. "" switches both off.
	Results string

	Copies       *spool.Store  // a new store; it holds copies of messages that may prove their sender
	MaxCopy      int64         // 10 MiB; the largest copy in octets; a larger message proves nothing
	ProofTimeout time.Duration // 5 s for all DNS queries of one answer; a proof that is still open then does not count

	// The first three timeouts may take effect up to a second late.
	FirstTimeout  time.Duration // 10 s from the connection to its first packet
	PacketTimeout time.Duration // 30 s for the rest of a packet that has begun
	IdleTimeout   time.Duration // 2 h between two packets; SMTP servers wait for their clients about as long
	DrainTimeout  time.Duration // 60 s; at a stop, how long mail servers may take to end their SMTP sessions
}

func (s Settings) withDefaults() Settings {
	if s.AllowFrom == nil {
		s.AllowFrom = listener.Loopback()
	}
	s.MaxConnections = cmp.Or(s.MaxConnections, 1024)
	if s.Copies == nil {
		s.Copies = spool.New(spool.Settings{})
	}
	s.MaxCopy = cmp.Or(s.MaxCopy, 10<<20)
	s.ProofTimeout = cmp.Or(s.ProofTimeout, 5*time.Second)
	s.FirstTimeout = cmp.Or(s.FirstTimeout, 10*time.Second)
	s.PacketTimeout = cmp.Or(s.PacketTimeout, 30*time.Second)
	s.IdleTimeout = cmp.Or(s.IdleTimeout, 2*time.Hour)
	s.DrainTimeout = cmp.Or(s.DrainTimeout, time.Minute)
	return s
}

// Server answers mail servers. Its methods are safe for concurrent use.
type Server struct {
	settings    Settings
	checker     *policy.Checker
	metrics     *metrics
	log         *slog.Logger
	connections *connections
	serving     atomic.Bool
}

// New returns a Server that decides by c. It registers its metrics with reg and panics if reg
// already has those of another Server.
func New(s Settings, c *policy.Checker, reg prometheus.Registerer, log *slog.Logger) *Server {
	s = s.withDefaults()
	m, calm := newMetrics(reg), listener.NewCalmLog(log)
	divertWarnings(calm)
	server := &Server{settings: s, checker: c, metrics: m, log: log}
	server.connections = newConnections(s, m, calm, server.macros)
	return server
}

// Connections returns the number of mail servers that are connected now.
func (s *Server) Connections() int {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	return len(s.connections.open)
}

// Serve answers mail servers that connect to the listeners, until ctx ends. Then it closes the
// listeners and waits until the mail servers have ended their SMTP sessions, for at most
// Settings.DrainTimeout. It does not close a connection in the middle of a session, because
// the mail server would then fall back on its default for the rest of the session.
//
// If a listener fails for good, the Server stops in the same way and Serve returns the
// listener's error. After the end of ctx Serve returns nil. A second call returns an error.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	if s.serving.Swap(true) {
		return errors.New("milter server: Serve called twice")
	}
	server, open := s.library(true), s.library(false)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var loops sync.WaitGroup
	done := make(chan struct{})
	defer close(done)
	go s.connections.watch(done)
	for _, l := range listeners {
		s.log.Info("milter listens", slog.String("address", l.Addr().String()))
		loops.Go(func() {
			if err := server.Serve(admitting{l, s.connections}); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("milter: %w", err))
			}
		})
	}
	var apart sync.WaitGroup
	apart.Go(func() { open.Serve(s.connections.apart) }) // until apart is closed
	<-ctx.Done()
	// When the library is told to stop, it closes the connections that it has accepted and not
	// yet begun to read. Postfix would pass that mail unchecked (milter_default_action =
	// accept). So the library is told only when it reads all of them.
	s.connections.stop()
	for _, l := range listeners {
		l.Close()
	}
	loops.Wait()
	s.connections.apart.Close()
	apart.Wait()
	s.connections.waitTaken(graceTime)
	s.drain(server, open)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// graceTime is how long the newest connection may take to send its first packet when the
// filter stops. Mail servers send it at once.
const graceTime = time.Second

// cutTime is how long the library may take to notice that its connections are closed. It looks
// twice a second.
const cutTime = 5 * time.Second

// drain waits for the SMTP sessions in progress. It closes silent connections after graceTime
// and all others after DrainTimeout.
func (s *Server) drain(servers ...*milter.Server) {
	all := func(*conn) bool { return true }
	silent := time.AfterFunc(min(graceTime, s.settings.DrainTimeout), func() { s.connections.cut((*conn).silent) })
	defer silent.Stop()
	timer := time.AfterFunc(s.settings.DrainTimeout, func() {
		if n := s.connections.cut(all); n > 0 {
			s.metrics.cut.Add(float64(n))
			s.log.Warn("milter connections closed, the time to stop is over", slog.Int("connections", n))
		}
	})
	defer timer.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.DrainTimeout+cutTime)
	defer cancel()
	// Serve has closed the listeners. The library closes them again and returns net.ErrClosed.
	var stopping sync.WaitGroup
	for _, server := range servers {
		stopping.Go(func() {
			if err := server.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
				s.log.Warn("milter not stopped in time", slog.Any("error", err))
			}
		})
	}
	stopping.Wait()
	s.connections.cut(all) // the library may not know a connection that arrives while it stops
}

// library returns the server that speaks the protocol, for peers that are listener.Private or for others: it does not
// tell a session whose it is. NewServer panics if options contradict each other; these options do not.
func (s *Server) library(private bool) *milter.Server {
	return milter.NewServer(
		milter.WithDynamicMilter(func(_ uint32, actions milter.OptAction, protocol milter.OptProtocol, _ milter.DataSize) milter.Milter {
			return &recoverer{next: newSession(s, private, actions, protocol), server: s}
		}),
		milter.WithActions(s.actions()),
		milter.WithProtocols(s.protocol()),
		milter.WithNegotiationCallback(s.negotiate),
	)
}
