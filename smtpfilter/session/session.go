// Package session is one client's SMTP session with the filter: a state machine
// between two byte streams, the client's and upstream's.
//
// It forwards lines and data as they were read, byte for byte, and answers on
// its own only what must not reach upstream. Its rules are docs/smtp.md.
package session

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"blockd/policy"
	"blockd/smtpfilter/upstream"
	"blockd/spool"
)

// Relay is what all sessions of a filter share. It is safe for concurrent use;
// Settings do not change after New.
type Relay struct {
	settings  Settings
	upstream  *upstream.Dialer
	checker   *policy.Checker
	door      policy.Door
	metrics   *Metrics
	log       *slog.Logger
	tarpits   atomic.Int64 // sessions whose answer is held back
	buffers   sync.Pool    // of *[dataBuffer]byte, lent to a session during DATA
	ends      sync.Pool    // of *ends, of sessions that are over
	upstreams sync.Pool    // of *upstreamConn, closed
}

// dataBuffer is how much of a message is read at once. A read system call costs
// about as much as scanning 32 KiB; larger pieces gain nothing measurable.
const dataBuffer = 32 << 10

// New returns a Relay. Zero fields of s take their defaults.
func New(s Settings, up *upstream.Dialer, c *policy.Checker, m *Metrics, log *slog.Logger) *Relay {
	s.Limits = s.Limits.withDefaults()
	if s.Copies == nil {
		s.Copies = spool.New(spool.Settings{})
	}
	s.MaxCopy = cmp.Or(s.MaxCopy, 10<<20)
	return &Relay{
		settings: s, upstream: up, checker: c, metrics: m, log: log,
		door: policy.Door{Name: "smtp", Log: log, Marks: true, Quarantines: s.Quarantine != nil, Splits: true,
			SeesHeader: true, SeesMessage: true, Streams: true, Greets: true, SkipAuthenticated: s.SkipAuthenticated},
		buffers: sync.Pool{New: func() any { return new([dataBuffer]byte) }},
	}
}

// Run serves one session from greeting to end and closes conn. client is the
// address that is logged and presented upstream; it need not be conn's own.
//
// When ctx ends the session drains (docs/smtp.md, "Stop and drain"): without a
// transaction it ends at once with 421 4.3.2, within one it has Limits.Drain
// until the dot, and between the dot and upstream's reply it is left alone for
// Limits.FinalReply. Run therefore always returns; to cut a session short of
// that, close conn. A panic within is recovered, counted and logged.
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
