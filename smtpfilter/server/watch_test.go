package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
	"blockd/smtpfilter/upstream"
)

func TestOpenRelayIsNotServed(t *testing.T) {
	for _, tt := range []struct {
		rcpt   string
		err    error
		line   string
		up     float64
		result string
	}{
		{"250 anybody", upstream.ErrOpenRelay, "421 4.3.0 us.example Service not available, try again later", 0, "open-relay"},
		{"454 4.7.1 relay access denied", nil, "220 127.0.0.1", 1, "passed"},
	} {
		p := &peer{rcpt: tt.rcpt}
		up := upstream.New(upstream.Settings{Network: "tcp", Address: p.listen(t), Hostname: "us.example"})
		r := start(t, Settings{}, echo, up)
		testkit.Eventually(t, "the self-test finds what upstream is", func() bool { return errors.Is(r.Status().Err, tt.err) })
		testkit.Equal(t, tt.rcpt, r.line(t), tt.line)
		conn, err := up.Open(t.Context(), upstream.Client{})
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: Open: %v, want %v", tt.rcpt, err, tt.err)
		} else if err == nil {
			conn.Close()
		}
		for _, result := range []string{"open-relay", "passed"} {
			if got, want := r.metric(t, "blockd_upstream_selftest_total", "result="+result), map[string]float64{tt.result: 1}[result]; got != want {
				t.Errorf("%s: selftest{%s} = %v, want %v", tt.rcpt, result, got, want)
			}
		}
		if got := r.metric(t, "blockd_smtp_connections_refused_total", "why=open-relay"); got != 1-tt.up {
			t.Errorf("%s: refused{open-relay} = %v", tt.rcpt, got)
		}
		if got := r.metric(t, "blockd_upstream_up", ""); tt.up == 1 && got != 1 {
			t.Errorf("%s: up = %v", tt.rcpt, got)
		}
	}
}

func TestOpenUpstreamCanBeAllowed(t *testing.T) {
	p := &peer{rcpt: "250 anybody"}
	up := upstream.New(upstream.Settings{Network: "tcp", Address: p.listen(t), Hostname: "us.example"})
	var log testkit.Log
	s := New(Settings{AllowOpenUpstream: true}, up, prometheus.NewRegistry(), log.Logger())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, echo) }()
	testkit.Eventually(t, "upstream is ready", func() bool { return s.Status().Err == nil })
	cancel()
	testkit.IsError(t, "Serve", <-done, nil)
	testkit.Has(t, log.String(), "self-test of upstream is switched off")
	testkit.Equal(t, "sessions", p.sessions, 1)
}

// watched plays with a watch that runs on p and tests it, though p is reached without a
// network: the clock of a bubble stands still while real sockets are read.
func watched(t *testing.T, p *peer, log *slog.Logger, play func(ctx context.Context, w *watch, wait func(time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clients := newClients(1, 1, 0)
		w := newWatch(p.embedded(), true, newMetrics(prometheus.NewRegistry(), clients.open), log)
		if s := w.status(); !errors.Is(s.Err, upstream.ErrUntested) || !s.Since.IsZero() {
			t.Errorf("before the first look: %v", s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go w.run(ctx)
		play(ctx, w, func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		})
	})
}

func TestWatchFollowsUpstream(t *testing.T) {
	var log testkit.Log
	p := &peer{rcpt: "550 5.7.1 no", down: true}
	watched(t, p, log.Logger(), func(ctx context.Context, w *watch, wait func(time.Duration)) {
		var refused *upstream.RefusedError
		steps := []struct {
			what  string
			wait  time.Duration
			rcpt  string
			down  bool
			ready bool
			open  bool
		}{
			{"down at the start", time.Second, "550 5.7.1 no", true, false, false},
			{"still down an hour later", time.Hour, "550 5.7.1 no", true, false, false},
			{"back, seen within 5 s", 5 * time.Second, "550 5.7.1 no", false, true, false},
			{"opened while it ran, seen within a minute", time.Minute, "250 ok", false, false, true},
			{"down again, seen within a minute", time.Minute, "250 ok", true, false, false},
			{"back as an open relay", 5 * time.Second, "250 ok", false, false, true},
			{"an open relay for an hour", time.Hour, "250 ok", false, false, true},
			{"repaired, seen within a minute", time.Minute, "454 4.7.1 no", false, true, false},
		}
		for _, step := range steps {
			p.set(step.rcpt, step.down)
			wait(step.wait)
			err := w.status().Err
			if (err == nil) != step.ready || errors.Is(err, upstream.ErrOpenRelay) != step.open {
				t.Errorf("%s: %v", step.what, err)
			}
			if step.down && !errors.As(err, &refused) {
				t.Errorf("%s: %v, want upstream's refusal", step.what, err)
			}
			// What a session gets.
			conn, err := w.up.Open(ctx, upstream.Client{})
			testkit.Equal(t, fmt.Sprintf("%s: Open: %v", step.what, err), err == nil, step.ready)
			if err == nil {
				conn.Close()
			}
		}
	})
	// Down, ready, open relay, down, open relay, ready: one line each, none for what lasts.
	if n := strings.Count(log.String(), "\n"); n != 6 {
		t.Errorf("%d log lines, want 6:\n%s", n, log.String())
	}
}

// A client that finds upstream stopped has it looked at, so that the metric and readiness say
// so before the minute is over; many such clients cost one look in 5 s.
func TestClientsTroubleHastensTheProbe(t *testing.T) {
	p := &peer{rcpt: "550 5.7.1 no"}
	watched(t, p, slog.New(slog.DiscardHandler), func(ctx context.Context, w *watch, wait func(time.Duration)) {
		wait(2 * probeAgain)
		if err := w.status().Err; err != nil {
			t.Fatalf("before: %v", err)
		}
		p.set("550 5.7.1 no", true)
		if _, err := w.up.Open(ctx, upstream.Client{}); err == nil {
			t.Fatal("Open has a session with a stopped upstream")
		}
		wait(0)
		if err := w.status().Err; err == nil {
			t.Error("the status is as before, though a client has met a stopped upstream")
		}
		begun := p.count()
		for range 100 {
			w.up.Open(ctx, upstream.Client{})
		}
		wait(probeAgain - time.Millisecond)
		if looks := p.count() - begun - 100; looks != 0 {
			t.Errorf("%d looks within 5 s", looks)
		}
	})
}

func TestInconclusiveSelfTestIsRepeated(t *testing.T) {
	p := &peer{rcpt: "421 4.7.0 slow down"}
	watched(t, p, slog.New(slog.DiscardHandler), func(ctx context.Context, w *watch, wait func(time.Duration)) {
		wait(time.Minute)
		if err := w.status().Err; err == nil {
			t.Error("ready without an answer")
		}
		testkit.Fails(w.up.Open(ctx, upstream.Client{}))(t, "Open", upstream.ErrUntested)
		p.set("550 5.7.1 no", false)
		wait(probeAgain)
		testkit.IsError(t, "after an answer", w.status().Err, nil)
	})
}

// A server that puts the test off, because it greylists, may be served: the log
// warns, once, the test is repeated, and what it finds later counts.
func TestUndecidedSelfTestIsServedAndRepeated(t *testing.T) {
	var log testkit.Log
	p := &peer{rcpt: "451 4.7.1 greylisted"}
	watched(t, p, log.Logger(), func(ctx context.Context, w *watch, wait func(time.Duration)) {
		wait(5*time.Minute + time.Second)
		testkit.IsError(t, "status", w.status().Err, upstream.ErrUndecided)
		conn, err := w.up.Open(ctx, upstream.Client{})
		if err != nil {
			t.Fatalf("Open: %v, want a session", err)
		}
		conn.Close()
		if n := strings.Count(log.String(), "may be an open relay"); n != 1 {
			t.Errorf("%d warnings, want 1:\n%s", n, log.String())
		}
		p.set("250 ok", false)
		wait(probeEvery)
		testkit.Fails(w.up.Open(ctx, upstream.Client{}))(t, "Open", upstream.ErrOpenRelay)
	})
}

// An upstream that turns out to be this filter is served no more, with the probe
// that finds it.
func TestOwnListenerFoundLaterIsNotServed(t *testing.T) {
	p := &peer{rcpt: "550 5.7.1 no"}
	address := p.listen(t)
	up := upstream.New(upstream.Settings{Network: "tcp", Address: address, Hostname: "us.example"})
	r := start(t, Settings{}, echo, up)
	testkit.Eventually(t, "the first look is good", func() bool { return r.Status().Err == nil })
	testkit.Equal(t, "before", r.line(t), "220 127.0.0.1")
	own, err := net.ResolveTCPAddr("tcp", address)
	testkit.Must(t, err)
	later := &watch{up: up, listen: []net.Addr{own}, metrics: r.metrics, log: r.log}
	later.last.Store(&Status{})
	err = later.look(t.Context())
	if !errors.Is(err, upstream.ErrOwnListener) {
		t.Fatalf("look: %v, want ErrOwnListener", err)
	}
	r.watch.report(err)
	testkit.Equal(t, "after", r.line(t), "421 4.3.0 us.example Service not available, try again later")
	testkit.Fails(up.Open(t.Context(), upstream.Client{}))(t, "Open", upstream.ErrOwnListener)
}
