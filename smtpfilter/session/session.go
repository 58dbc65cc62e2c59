// Package session serves one client's SMTP session: a state machine between two byte streams,
// the client's and upstream's.
//
// It forwards lines and data as they came, byte for byte. It answers on its own only commands
// that must not reach upstream. docs/smtp.md has its rules.
package session

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"blockd/mail/spool"
	"blockd/policy"
	"blockd/smtpfilter/upstream"
)

// Relay holds what all sessions of a filter share. It is safe for concurrent use. The settings
// do not change after New.
type Relay struct {
	settings  Settings
	upstream  *upstream.Dialer
	checker   *policy.Checker
	door      policy.Door
	metrics   *Metrics
	log       *slog.Logger
	tarpits   atomic.Int64 // sessions whose answer is delayed now
	buffers   sync.Pool    // of *[dataBuffer]byte; a session borrows one during DATA
	ends      sync.Pool    // of *clientBuffers, of ended sessions
	upstreams sync.Pool    // of *upstreamConn, of closed connections
}

// dataBuffer is the size of one read of a message, in octets. A read system call costs about
// as much as scanning 32 KiB. Larger reads gain nothing measurable.
const dataBuffer = 32 << 10

// New returns a Relay that decides by c and passes mail on to up. Zero fields of s take their
// defaults.
func New(s Settings, up *upstream.Dialer, c *policy.Checker, m *Metrics, log *slog.Logger) *Relay {
	s.Limits = s.Limits.withDefaults()
	if s.Copies == nil {
		s.Copies = spool.New(spool.Settings{})
	}
	s.MaxCopy = cmp.Or(s.MaxCopy, 10<<20)
	return &Relay{
		settings: s, upstream: up, checker: c, metrics: m, log: log,
		door: policy.Door{Name: "smtp", Log: log, Marks: true, Quarantines: s.Quarantine != nil, Splits: true,
			SeesHeader: true, SeesMessage: true, Streams: true, Greets: true, HearsEnd: true, SkipAuthenticated: s.SkipAuthenticated},
		buffers: sync.Pool{New: func() any { return new([dataBuffer]byte) }},
	}
}

// Run serves one session from the greeting to its end, and closes conn. client is the address
// that is looked up, logged and passed to upstream. It may differ from conn's own address, for
// example after a PROXY header. Run may be called from several goroutines at once.
//
// When ctx ends, the session drains (docs/smtp.md, "Stop and drain"). Without a transaction it
// ends at once with 421 4.3.2. Within one it has Limits.Drain to reach the dot. Between the
// dot and upstream's reply it may wait for Limits.FinalReply. So Run always returns; closing
// conn ends it sooner. Run recovers from panics, counts them and logs them.
func (r *Relay) Run(ctx context.Context, conn net.Conn, client netip.AddrPort) {
	r.metrics.sessions.Inc()
	r.metrics.active.Inc()
	defer r.metrics.active.Dec()

	s := newSession(r, conn, client)
	s.stopping = ctx.Done()
	hard, stop := s.deadlines.watch(ctx, r.settings.Limits)
	s.hard = hard
	defer stop()
	defer s.close()
	defer s.recover()
	s.serve()
}
