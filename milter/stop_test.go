package milter_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
	"blockd/milter"
	"blockd/policy"
)

// ends waits for Serve and returns how long it took.
func (d *door) ends() time.Duration {
	d.t.Helper()
	begun := time.Now()
	d.stop()
	select {
	case err := <-d.ended:
		if err != nil {
			d.t.Errorf("Serve: %v", err)
		}
		d.ended <- nil
	case <-time.After(2 * time.Minute):
		d.t.Fatal("Serve does not end")
	}
	return time.Since(begun)
}

// A stop waits for SMTP sessions in progress, and for no other connection.
func TestStop(t *testing.T) {
	lists := map[string]string{"bad": "bad.example\n"}
	t.Run("nobody there", func(t *testing.T) {
		d := open(t, setup{lists: lists, settings: milter.Settings{DrainTimeout: time.Minute}})
		if took := d.ends(); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		if log := d.log.String(); strings.Contains(log, "level=WARN") {
			t.Errorf("a stop with nobody there warns:\n%s", log)
		}
	})
	t.Run("silent connections", func(t *testing.T) {
		d := open(t, setup{lists: lists, settings: milter.Settings{DrainTimeout: time.Minute, FirstTimeout: time.Minute}})
		var all []*mta
		for range 20 {
			all = append(all, d.dial())
		}
		testkit.Eventually(t, "them to be let in", func() bool { return d.server.Connections() == 20 })
		if took := d.ends(); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		for _, m := range all {
			if !m.closed() {
				t.Error("a silent connection is still open")
			}
		}
	})
	t.Run("a busy session ends well", func(t *testing.T) {
		d := open(t, setup{lists: lists, settings: milter.Settings{DrainTimeout: time.Minute}})
		m := d.greet("192.0.2.1")
		m.mail("a@bad.example", "a@bad.example")
		d.stop()
		testkit.Eventually(t, "the listener to close", func() bool {
			conn, err := net.Dial(d.network, d.address)
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
		m.refuses("RCPT while stopping")
		m.send('A', "")
		testkit.Equal(t, "MAIL while stopping", m.mail("a@there.example", "a@there.example"), "a")
		m.send('Q', "")
		if took := d.ends(); took > 30*time.Second {
			t.Errorf("took %v after the last session", took)
		}
		testkit.Equal(t, "cut", d.metric("blockd_milter_cut_total"), 0)
	})
	t.Run("a server that keeps its connection for the next client", func(t *testing.T) {
		d := open(t, setup{lists: lists, settings: milter.Settings{DrainTimeout: time.Minute}})
		m := d.greet("192.0.2.1")
		d.stop()
		m.send('K', "")
		if took := d.ends(); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
	})
	t.Run("idle sessions are cut when the time is over", func(t *testing.T) {
		d := open(t, setup{lists: lists, settings: milter.Settings{DrainTimeout: 300 * time.Millisecond}})
		var all []*mta
		for range 20 {
			all = append(all, d.greet("192.0.2.1"))
		}
		if took := d.ends(); took < 250*time.Millisecond || took > 30*time.Second {
			t.Errorf("took %v, want 300 ms", took)
		}
		for _, m := range all {
			if !m.closed() {
				t.Error("a connection is still open")
			}
		}
		testkit.Equal(t, "cut", d.metric("blockd_milter_cut_total"), 20)
		testkit.Has(t, d.log.String(), "the time to stop is over")
	})
}

// A listener that fails for good ends Serve with an error, and so the daemon.
func TestListenerThatFails(t *testing.T) {
	l := testkit.Listen(t)
	ix := build(t, map[string]string{"bad": "bad.example\n"})
	reg, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	s := milter.New(milter.Settings{}, policy.New(constant(ix), policy.Settings{}, log, reg), reg, log)
	l.Close()
	if err := s.Serve(context.Background(), l); err == nil || !strings.Contains(err.Error(), "milter: ") {
		t.Errorf("Serve: %v", err)
	}
	if err := s.Serve(context.Background()); err == nil {
		t.Error("Serve may be called twice")
	}
}
