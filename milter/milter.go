// Package milter is the door for Postfix and Sendmail: they stay where they are,
// ask blockd about each sender by the milter protocol, and do what it says.
//
// The protocol is the library's; what it lacks towards peers that are not honest
// is the guard's. A sender whom no list has anything on costs one round trip: the
// message is accepted at MAIL and the mail server asks no more. Others are
// answered recipient by recipient.
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

	"blockd/listener"
	"blockd/policy"
	"blockd/spool"
)

// Settings of a Server. A zero field takes the default named beside it.
type Settings struct {
	RejectAt          string         // "rcpt" (also "") or "mail": where a listed sender is refused
	ClientRejectAt    string         // "rcpt" (also "") or "connect": where a listed client is refused
	SkipAuthenticated bool           // no list of senders is asked about a client that has authenticated
	Trusted           []netip.Prefix // SMTP clients whom no list is asked about
	OnError           policy.OnError // the answer to an event in which blockd itself failed

	AllowFrom      []netip.Prefix // mail servers that may connect by TCP; nil = loopback
	MaxConnections int            // 1,024 at once, over all listeners

	// Results is the name in whose name Authentication-Results are written: of what was
	// found where proof was looked for. Those of messages from outside that claim this
	// name are taken out. "" = neither.
	Results string

	Copies       *spool.Store  // one of its own: of messages that may prove something
	MaxCopy      int64         // 10 MiB: octets of such a message; a larger one proves nothing
	ProofTimeout time.Duration // 5 s for all DNS queries that an answer needs; what is open then is not proved

	// The first three may last a second longer.
	FirstTimeout  time.Duration // 10 s from the connection to its first packet
	PacketTimeout time.Duration // 30 s for the rest of a packet that has begun
	IdleTimeout   time.Duration // 2 h between packets: as long as an SMTP client may keep its server waiting
	DrainTimeout  time.Duration // 60 s for mail servers to end their SMTP sessions when the filter stops
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

// Server answers mail servers. It is safe for concurrent use.
type Server struct {
	settings Settings
	checker  *policy.Checker
	metrics  *metrics
	log      *slog.Logger
	calm     *listener.CalmLog
	guard    *guard
	serving  atomic.Bool
}

// New returns a Server that decides by c. Metrics go to reg, which can hold those
// of one Server.
func New(s Settings, c *policy.Checker, reg prometheus.Registerer, log *slog.Logger) *Server {
	s = s.withDefaults()
	m, calm := newMetrics(reg), listener.NewCalmLog(log)
	divertWarnings(calm)
	return &Server{settings: s, checker: c, metrics: m, log: log, calm: calm, guard: newGuard(s, m, calm)}
}

// Connections returns how many mail servers are connected now.
func (s *Server) Connections() int {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	return len(s.guard.open)
}

// Serve answers who connects to the listeners until ctx ends. Then it closes them
// and waits until the mail servers have ended the SMTP sessions that they ask
// about, for Settings.DrainTimeout at the most: to close a connection in the
// middle of such a session has the mail server fall back on its default for the
// rest of it. It is called once.
//
// A listener that fails for good stops the Server like the end of ctx, and Serve
// returns its error.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	if s.serving.Swap(true) {
		return errors.New("milter server: Serve called twice")
	}
	server := s.library()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var loops sync.WaitGroup
	done := make(chan struct{})
	defer close(done)
	go s.guard.lookOut(done)
	for _, l := range listeners {
		s.log.Info("milter listens", slog.String("address", l.Addr().String()))
		loops.Go(func() {
			if err := server.Serve(guarded{l, s.guard}); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("milter: %w", err))
			}
		})
	}
	<-ctx.Done()
	// The library closes a connection that it has accepted but not begun to read
	// when it is told to stop, and Postfix then lets the mail pass unjudged
	// (milter_default_action = accept): so it is told when it reads them all.
	s.guard.stop()
	for _, l := range listeners {
		l.Close()
	}
	loops.Wait()
	s.guard.handed(graceTime)
	s.drain(server)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// graceTime is how long a connection that came last may take to its first packet
// when the filter stops. A mail server sends that at once.
const graceTime = time.Second

// cutTime is how long the library may take to see that its connections are closed:
// it looks twice a second.
const cutTime = 5 * time.Second

// drain ends what Serve has begun.
func (s *Server) drain(server *milter.Server) {
	everybody := func(*conn) bool { return true }
	silent := time.AfterFunc(min(graceTime, s.settings.DrainTimeout), func() { s.guard.cut((*conn).silent) })
	defer silent.Stop()
	timer := time.AfterFunc(s.settings.DrainTimeout, func() {
		if n := s.guard.cut(everybody); n > 0 {
			s.metrics.cut.Add(float64(n))
			s.log.Warn("milter connections closed, the time to stop is over", slog.Int("connections", n))
		}
	})
	defer timer.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.DrainTimeout+cutTime)
	defer cancel()
	// Serve has closed the listeners: the library closes them once more, and says so.
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("milter not stopped in time", slog.Any("error", err))
	}
	s.guard.cut(everybody) // the library can lose one that comes while it stops
}

// library makes the server that speaks the protocol. It panics on options that
// contradict each other, and these do not.
func (s *Server) library() *milter.Server {
	return milter.NewServer(
		milter.WithDynamicMilter(func(_ uint32, actions milter.OptAction, protocol milter.OptProtocol, _ milter.DataSize) milter.Milter {
			return &recoverer{next: newSession(s, actions, protocol), server: s}
		}),
		milter.WithActions(s.actions()),
		milter.WithProtocols(s.protocol()),
		milter.WithNegotiationCallback(s.negotiate),
		// What is used and no more: for {mail_host}, which it sends by default, Postfix has
		// each sender resolved by another process.
		milter.WithMacroRequest(milter.StageConnect, []milter.MacroName{milter.MacroMTAFQDN, milter.MacroClientAddr}),
		milter.WithMacroRequest(milter.StageMail, []milter.MacroName{milter.MacroQueueId, milter.MacroAuthAuthen, milter.MacroMailAddr}),
		milter.WithMacroRequest(milter.StageRcpt, []milter.MacroName{milter.MacroRcptAddr}),
	)
}
