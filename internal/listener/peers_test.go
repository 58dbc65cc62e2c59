package listener_test

import (
	"bytes"
	"fmt"
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

func TestAdmits(t *testing.T) {
	office := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("fe80::/10")}
	for _, c := range []struct {
		name     string
		networks []netip.Prefix
		peer     net.Addr
		want     bool
	}{
		{"in a network", office, tcp("192.0.2.7"), true},
		{"beside it", office, tcp("192.0.3.7"), false},
		{"IPv4 as IPv6", office, tcp("::ffff:192.0.2.7"), true},
		{"with a zone", office, &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, true},
		{"no network", nil, tcp("127.0.0.1"), false},
		{"loopback", listener.Loopback(), tcp("127.9.9.9"), true},
		{"loopback, IPv6", listener.Loopback(), tcp("::1"), true},
		{"Unix socket", nil, &net.UnixAddr{Net: "unix"}, true},
		{"no address", office, nil, false},
		{"no IP address", office, &net.TCPAddr{}, false},
		{"of another kind", office, &net.UDPAddr{IP: net.ParseIP("192.0.2.7")}, false},
	} {
		testkit.Equal(t, c.name, listener.Admits(c.networks, c.peer), c.want)
	}
}

func TestNetworkOfAClient(t *testing.T) {
	for ip, want := range map[string]string{
		"192.0.2.7":            "192.0.2.7/32",
		"::ffff:192.0.2.7":     "192.0.2.7/32",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"fe80::1%eth0":         "fe80::/64",
		"2001:db8:1:2:ffff::":  "2001:db8:1:2::/64",
	} {
		testkit.Equal(t, fmt.Sprintf("Network(%s)", ip), listener.Network(netip.MustParseAddr(ip)).String(), want)
	}
	if listener.Network(netip.Addr{}).IsValid() {
		t.Error("network of an unknown address is valid")
	}
}

func tcp(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 25} }

func TestCalmLogWritesOnceInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := listener.NewCalmLog(slog.New(slog.NewTextHandler(&text, nil)))
		for range 1000 {
			log.Warn("nonsense", slog.String("peer", "x"))
		}
		time.Sleep(11 * time.Second)
		log.Warn("more")
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "peer=x not_logged_before=0") || !strings.Contains(lines[1], "not_logged_before=999") {
			t.Errorf("%q", lines)
		}
	})
}

// The bubble's clock stands years behind that of the test around it.
func TestCalmLogSpeaksBehindAClockThatWasSetBack(t *testing.T) {
	var text bytes.Buffer
	log := listener.NewCalmLog(slog.New(slog.NewTextHandler(&text, nil)))
	log.Warn("before")
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			log.Warn("behind")
		}
	})
	if got := strings.Count(text.String(), "\n"); got != 2 {
		t.Errorf("%d lines, want 2: %s", got, &text)
	}
}
