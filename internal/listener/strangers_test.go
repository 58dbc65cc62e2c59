package listener_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/listener"
	"blockd/internal/testkit"
)

func TestStrangersAreToldOnceAMinuteANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := listener.NewStrangers("milter", "milter.allow_from", slog.New(slog.NewTextHandler(&text, nil)))
		said := func() int { return strings.Count(text.String(), "\n") }
		for range 600 { // ten minutes of a mail server that tries each second
			s.TurnedAway(&net.TCPAddr{IP: net.ParseIP("172.18.0.3"), Port: 1})
			time.Sleep(time.Second)
		}
		if n := said(); n != 10 {
			t.Errorf("%d lines in ten minutes, want 10\n%s", n, &text)
		}
		testkit.Has(t, text.String(), "network=172.18.0.3 times=60", `add \"172.18.0.3\" to milter.allow_from`)
		remarks := s.Remarks()
		if len(remarks) != 1 || !strings.HasPrefix(remarks[0], "milter.allow_from: 172.18.0.3 was turned away 600 times, last at ") {
			t.Errorf("%q", remarks)
		}
		time.Sleep(time.Hour)
		if remarks := s.Remarks(); len(remarks) != 0 {
			t.Errorf("after an hour: %q", remarks)
		}
	})
}

// Forged addresses fill neither the log nor the memory.
func TestStrangersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := listener.NewStrangers("dns", "dns.allow_from", slog.New(slog.NewTextHandler(&text, nil)))
		ip := netip.MustParseAddr("192.0.2.0")
		for range 100_000 {
			s.TurnedAwayIP(ip)
			ip = ip.Next()
		}
		testkit.Equal(t, "lines", strings.Count(text.String(), "\n"), 8)
		remarks := s.Remarks()
		if len(remarks) != 4 || remarks[3] != "dns.allow_from: clients of 29 more networks were turned away" {
			t.Errorf("%q", remarks)
		}
	})
}

func TestNoStrangers(t *testing.T) {
	var s *listener.Strangers
	s.TurnedAway(&net.TCPAddr{IP: net.ParseIP("192.0.2.1")})
	if s.Remarks() != nil {
		t.Error("a nil *Strangers remembers")
	}
	s = listener.NewStrangers("resp", "resp.allow_from", slog.New(slog.DiscardHandler))
	s.TurnedAway(&net.UnixAddr{Name: "/x", Net: "unix"})
	s.TurnedAway(nil)
	s.TurnedAway(&net.TCPAddr{})
	if lines := s.Remarks(); lines != nil {
		t.Errorf("%q", lines)
	}
}
