package server

import (
	"context"
	"errors"
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
	p := &peer{rcpt: "250 anybody"}
	up := upstream.New(upstream.Settings{Network: "tcp", Address: p.listen(t), Hostname: "us.example"})
	r := start(t, Settings{}, echo, up)
	testkit.Eventually(t, "the self-test finds the open relay", func() bool {
		return errors.Is(r.Status().Err, upstream.ErrOpenRelay)
	})
	if _, line := r.dial(t); line != "421 4.3.0 us.example Service not available, try again later" {
		t.Errorf("client reads %q", line)
	}
	if _, err := up.Open(t.Context(), upstream.Client{}); !errors.Is(err, upstream.ErrOpenRelay) {
		t.Errorf("Open: %v, want ErrOpenRelay", err)
	}
	for label, want := range map[string]float64{"result=open-relay": 1, "result=passed": 0} {
		if got := r.metric(t, "blockd_upstream_selftest_total", label); got != want {
			t.Errorf("selftest{%s} = %v, want %v", label, got, want)
		}
	}
	if got := r.metric(t, "blockd_smtp_connections_refused_total", "why=open-relay"); got != 1 {
		t.Errorf("refused{open-relay} = %v, want 1", got)
	}
}

func TestClosedRelayIsServed(t *testing.T) {
	p := &peer{rcpt: "454 4.7.1 relay access denied"}
	up := upstream.New(upstream.Settings{Network: "tcp", Address: p.listen(t), Hostname: "us.example"})
	r := start(t, Settings{}, echo, up)
	testkit.Eventually(t, "the self-test passes", func() bool { return r.Status().Err == nil })
	if _, line := r.dial(t); line != "220 127.0.0.1" {
		t.Errorf("client reads %q", line)
	}
	conn, err := up.Open(t.Context(), upstream.Client{})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	conn.Close()
	if got := r.metric(t, "blockd_upstream_up", ""); got != 1 {
		t.Errorf("up = %v, want 1", got)
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
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if !strings.Contains(log.String(), "self-test of upstream is switched off") {
		t.Errorf("log %q does not say that there is no test", log.String())
	}
	if p.sessions != 1 {
		t.Errorf("%d sessions, want the probe alone", p.sessions)
	}
}

// relaying is a watch on p that tests it, though p is reached without a network:
// the clock of a bubble stands still while real sockets are read.
func relaying(p *peer, log *slog.Logger) *watch {
	clients := newClients(1, 1, 0)
	return newWatch(p.embedded(), true, newMetrics(prometheus.NewRegistry(), clients.open), log)
}

func TestWatchFollowsUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		p := &peer{rcpt: "550 5.7.1 no", down: true}
		w := relaying(p, log.Logger())
		if s := w.status(); !errors.Is(s.Err, upstream.ErrUntested) || !s.Since.IsZero() {
			t.Errorf("before the first look: %v", s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.run(ctx)
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
			<-time.After(step.wait)
			synctest.Wait()
			err := w.status().Err
			if (err == nil) != step.ready || errors.Is(err, upstream.ErrOpenRelay) != step.open {
				t.Errorf("%s: %v", step.what, err)
			}
			if step.down && !errors.As(err, &refused) {
				t.Errorf("%s: %v, want upstream's refusal", step.what, err)
			}
			// What a session gets.
			conn, err := w.up.Open(ctx, upstream.Client{})
			if (err == nil) != step.ready {
				t.Errorf("%s: Open: %v", step.what, err)
			}
			if err == nil {
				conn.Close()
			}
		}
		cancel()
		synctest.Wait()
		// Down, ready, open relay, down, open relay, ready: one line each, none for what lasts.
		if n := strings.Count(log.String(), "\n"); n != 6 {
			t.Errorf("%d log lines, want 6:\n%s", n, log.String())
		}
	})
}

// A client that finds upstream stopped has it looked at, so that the metric and readiness say
// so before the minute is over; many such clients cost one look in 5 s.
func TestClientsTroubleHastensTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{rcpt: "550 5.7.1 no"}
		w := relaying(p, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.run(ctx)
		<-time.After(2 * probeAgain)
		synctest.Wait()
		if err := w.status().Err; err != nil {
			t.Fatalf("before: %v", err)
		}
		p.set("550 5.7.1 no", true)
		if _, err := w.up.Open(ctx, upstream.Client{}); err == nil {
			t.Fatal("Open has a session with a stopped upstream")
		}
		synctest.Wait()
		if err := w.status().Err; err == nil {
			t.Error("the status is as before, though a client has met a stopped upstream")
		}
		begun := p.count()
		for range 100 {
			w.up.Open(ctx, upstream.Client{})
		}
		<-time.After(probeAgain - time.Millisecond)
		synctest.Wait()
		if looks := p.count() - begun - 100; looks != 0 {
			t.Errorf("%d looks within 5 s", looks)
		}
	})
}

func TestInconclusiveSelfTestIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{rcpt: "421 4.7.0 slow down"}
		w := relaying(p, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.run(ctx)
		<-time.After(time.Minute)
		synctest.Wait()
		if err := w.status().Err; err == nil {
			t.Error("ready without an answer")
		}
		if _, err := w.up.Open(ctx, upstream.Client{}); !errors.Is(err, upstream.ErrUntested) {
			t.Errorf("Open: %v, want ErrUntested", err)
		}
		p.set("550 5.7.1 no", false)
		<-time.After(probeAgain)
		synctest.Wait()
		if err := w.status().Err; err != nil {
			t.Errorf("after an answer: %v", err)
		}
	})
}

// A server that puts the test off, because it greylists, may be served: the log
// warns, once, the test is repeated, and what it finds later counts.
func TestUndecidedSelfTestIsServedAndRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		p := &peer{rcpt: "451 4.7.1 greylisted"}
		w := relaying(p, log.Logger())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.run(ctx)
		<-time.After(5*time.Minute + time.Second)
		synctest.Wait()
		if err := w.status().Err; !errors.Is(err, upstream.ErrUndecided) {
			t.Errorf("status: %v, want ErrUndecided", err)
		}
		conn, err := w.up.Open(ctx, upstream.Client{})
		if err != nil {
			t.Fatalf("Open: %v, want a session", err)
		}
		conn.Close()
		if n := strings.Count(log.String(), "may be an open relay"); n != 1 {
			t.Errorf("%d warnings, want 1:\n%s", n, log.String())
		}
		p.set("250 ok", false)
		<-time.After(probeEvery)
		synctest.Wait()
		if _, err := w.up.Open(ctx, upstream.Client{}); !errors.Is(err, upstream.ErrOpenRelay) {
			t.Errorf("Open: %v, want ErrOpenRelay when the greylisting is over", err)
		}
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
	if _, line := r.dial(t); line != "220 127.0.0.1" {
		t.Errorf("before: %q", line)
	}
	own, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	later := &watch{up: up, listen: []net.Addr{own}, metrics: r.metrics, log: r.log}
	later.last.Store(&Status{})
	err = later.look(t.Context())
	if !errors.Is(err, upstream.ErrOwnListener) {
		t.Fatalf("look: %v, want ErrOwnListener", err)
	}
	r.watch.report(err)
	if _, line := r.dial(t); line != "421 4.3.0 us.example Service not available, try again later" {
		t.Errorf("after: %q", line)
	}
	if _, err := up.Open(t.Context(), upstream.Client{}); !errors.Is(err, upstream.ErrOwnListener) {
		t.Errorf("Open: %v, want ErrOwnListener", err)
	}
}
