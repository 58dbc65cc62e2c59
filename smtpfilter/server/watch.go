package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"blockd/smtpfilter/upstream"
)

// The times of the watch on upstream.
const (
	probeEvery   = time.Minute      // while all is well, while upstream relays, and while the test is undecided
	probeAgain   = 5 * time.Second  // after a failure, also one that a client has met
	probeTimeout = 30 * time.Second // for a probe, and for a self-test
)

// Status is the last result of the watch on upstream.
type Status struct {
	// Err is why mail cannot pass. It is nil if upstream answers and has passed the
	// self-test, if one is needed. It is upstream.ErrUntested before the
	// first look. It wraps upstream.ErrOpenRelay if upstream is an open relay, and
	// upstream.ErrOwnListener if upstream is blockd itself. Otherwise it is
	// *upstream.RefusedError or a network's error. With upstream.ErrUndecided mail does pass.
	Err   error
	Since time.Time // the time of the last change; zero before the first look
}

// state is what s comes down to.
func (s Status) state() string {
	switch {
	case s.Err == nil:
		return "ready"
	case errors.Is(s.Err, upstream.ErrOpenRelay):
		return "open relay"
	case errors.Is(s.Err, upstream.ErrOwnListener):
		return "own listener"
	case errors.Is(s.Err, upstream.ErrUndecided):
		return "undecided"
	}
	return "not ready"
}

// Status returns whether mail can pass, for readiness reports.
func (s *Server) Status() Status { return s.watch.status() }

// Look is the first look at upstream, for one who wants no client to come before it. Call it before Serve, if at all. It
// takes as long as upstream does, or until ctx ends.
func (s *Server) Look(ctx context.Context, listeners ...net.Listener) {
	s.watch.listen = addresses(listeners)
	err := s.watch.look(ctx)
	s.watch.looked = ctx.Err() == nil
	if s.watch.looked {
		s.watch.report(err)
	}
}

// watch probes upstream, which refreshes what EHLO offers, and tests it for an
// open relay with every probe.
type watch struct {
	up       *upstream.Dialer
	selfTest bool
	listen   []net.Addr // set before run and look
	looked   bool       // by Look
	metrics  *metrics
	log      *slog.Logger
	last     atomic.Pointer[Status]
}

func newWatch(up *upstream.Dialer, selfTest bool, m *metrics, log *slog.Logger) *watch {
	if selfTest {
		up.RequireSelfTest()
	}
	w := &watch{up: up, selfTest: selfTest, metrics: m, log: log}
	w.last.Store(&Status{Err: upstream.ErrUntested})
	return w
}

func (w *watch) status() Status { return *w.last.Load() }

// run looks at upstream until ctx ends.
func (w *watch) run(ctx context.Context) {
	for first := true; ; first = false {
		err := w.status().Err
		if !first || !w.looked {
			err = w.look(ctx)
			if ctx.Err() != nil {
				return
			}
			w.report(err)
		}
		pause := probeEvery
		if err != nil && !errors.Is(err, upstream.ErrOpenRelay) && !errors.Is(err, upstream.ErrUndecided) {
			pause = probeAgain
		}
		if !w.rest(ctx, pause) {
			return
		}
	}
}

// rest waits for the next look: pause, or probeAgain if a client finds earlier that
// upstream has failed. It returns false at the end of ctx.
func (w *watch) rest(ctx context.Context, pause time.Duration) bool {
	ended, again := time.After(pause), time.After(min(pause, probeAgain))
	select {
	case <-ended:
		return true
	case <-again: // no client can make the look come sooner
	case <-ctx.Done():
		return false
	}
	select {
	case <-ended:
	case <-w.up.Trouble():
	case <-ctx.Done():
		return false
	}
	return true
}

// look probes and tests once. Unlike an open relay, a failed probe does not stop
// clients: upstream may be busy, and each session finds out for itself.
func (w *watch) look(ctx context.Context) error {
	// The name may now mean another address: blockd's own.
	err := w.up.CheckListeners(ctx, w.listen)
	if err == nil {
		err = within(ctx, w.up.Probe)
	}
	if err != nil {
		w.metrics.up.Set(0)
		return err
	}
	w.metrics.up.Set(1)
	// Each time, and not only after an outage: a server may be stopped, changed
	// and started again between two probes. The test costs one RCPT a
	// minute.
	if w.selfTest {
		if err := within(ctx, w.up.SelfTest); err != nil {
			result := "inconclusive"
			switch {
			case errors.Is(err, upstream.ErrOpenRelay):
				result = "open-relay"
			case errors.Is(err, upstream.ErrUndecided):
				result = "undecided"
			}
			w.metrics.selfTests.WithLabelValues(result).Inc()
			return fmt.Errorf("self-test: %w", err)
		}
		w.metrics.selfTests.WithLabelValues("passed").Inc()
	}
	return nil
}

// within gives f the time of one look.
func within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return f(ctx)
}

// report publishes err, and logs a change of the state: an
// outage of an hour is two lines, not 720.
func (w *watch) report(err error) {
	now, before := Status{Err: err, Since: time.Now()}, w.status()
	changed := before.Since.IsZero() || before.state() != now.state()
	if !changed {
		now.Since = before.Since // the same, though the error's text may differ
	}
	w.last.Store(&now)
	if changed { // logged after the change is published, so that a reader of the line who then asks gets the same answer
		w.logChange(err)
	}
}

func (w *watch) logChange(err error) {
	switch {
	case err == nil:
		w.log.Info("upstream ready")
	case errors.Is(err, upstream.ErrOpenRelay):
		w.log.Error("no mail is taken: upstream relays for strangers; "+
			"make it distrust blockd's address, or set client_info (docs/smtp.md), "+
			"or allow_open_upstream if it takes any recipient on purpose", slog.Any("error", err))
	case errors.Is(err, upstream.ErrOwnListener):
		w.log.Error("no mail is taken: upstream is this filter, mail would run in a circle", slog.Any("error", err))
	case errors.Is(err, upstream.ErrUndecided):
		w.log.Warn("upstream may be an open relay; mail passes, and the test is repeated", slog.Any("error", err))
	default:
		w.log.Warn("upstream not ready", slog.Any("error", err))
	}
}
