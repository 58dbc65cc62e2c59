package listener_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/listener"
	"blockd/internal/testkit"
)

// By TCP of this machine, or by a socket that is open to all, any user may have come.
func TestPrivate(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	for _, c := range []struct {
		name, network, address string
		mode                   os.FileMode
		want                   bool
	}{
		{"a socket for its owner", "unix", socket + "1", 0o600, true}, {"a socket for a group", "unix", socket + "2", 0o660, true},
		{"a socket for all", "unix", socket + "3", 0o666, false}, {"a socket that all may write to", "unix", socket + "4", 0o662, false},
		{"loopback", "tcp", "127.0.0.1:0", 0, false}, {"any address", "tcp", "0.0.0.0:0", 0, false}, {"IPv6", "tcp", "[::1]:0", 0, false},
	} {
		l := testkit.Value(net.Listen(c.network, c.address))(t)
		if c.mode != 0 {
			testkit.Must(t, os.Chmod(c.address, c.mode))
		}
		testkit.Value(net.Dial(c.network, l.Addr().String()))(t)
		conn := testkit.Value(l.Accept())(t)
		testkit.Equal(t, c.name, listener.Private(conn), c.want)
		conn.Close()
		l.Close()
	}
	for _, c := range []struct {
		name, local, peer string
		want              bool
	}{{"another machine", "192.0.2.1", "192.0.2.7", true}, {"another container", "172.20.0.3", "172.20.0.2", true}, {"its own address", "192.0.2.1", "192.0.2.1", false},
		{"its own address as IPv6", "192.0.2.1", "::ffff:192.0.2.1", false}, {"loopback", "192.0.2.1", "127.0.0.1", false}, {"to loopback", "127.0.0.1", "192.0.2.7", false}, {"to loopback, IPv6", "::1", "2001:db8::7", false}} {
		testkit.Equal(t, c.name, listener.Private(between{local: tcp(c.local), peer: tcp(c.peer)}), c.want)
	}
}

// A local user may come from any address of the machine, whichever he connects to.
func TestNoAddressOfThisMachineIsPrivate(t *testing.T) {
	for _, own := range testkit.Value(net.InterfaceAddrs())(t) {
		if n, ok := own.(*net.IPNet); ok {
			testkit.Equal(t, n.IP.String(), listener.Private(between{local: tcp("192.0.2.1"), peer: &net.TCPAddr{IP: n.IP, Port: 4711}}), false)
		}
	}
}

// between is a connection of two addresses.
type between struct {
	net.Conn
	local, peer net.Addr
}

func (b between) LocalAddr() net.Addr  { return b.local }
func (b between) RemoteAddr() net.Addr { return b.peer }

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
