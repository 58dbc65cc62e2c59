package daemon

import (
	"fmt"
	"net"
	"testing"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
)

// A set that begins with another one hands on what both name, binds the rest, and never opens a place twice.
func TestSocketsAreHandedOn(t *testing.T) {
	path := config.UnixPrefix + t.TempDir() + "/s"
	listenAt := func(s *sockets, door, address string) net.Listener {
		t.Helper()
		all := testkit.Value(s.listen(t.Context(), door, door+".listen", address, ""))(t)
		testkit.MustEqual(t, "listeners", len(all), 1)
		return all[0]
	}
	first := &sockets{open: map[place]socket{}}
	tcp, unix := listenAt(first, "smtp", "127.0.0.1:0"), listenAt(first, "milter", path)
	packets := testkit.Value(first.listenPackets(t.Context(), "dns", "dns.listen", "127.0.0.1:0", []net.Listener{tcp}))(t)
	next := &sockets{before: first.open, open: map[place]socket{}}
	defer next.close()
	testkit.Equal(t, "a place that both name", listenAt(next, "smtp", "127.0.0.1:0"), tcp)
	testkit.Equal(t, "a Unix socket that both name", listenAt(next, "milter", path), unix)
	if l := listenAt(next, "http", "127.0.0.1:0"); l == tcp || l == unix {
		t.Error("another door has the socket of this one")
	}
	testkit.Equal(t, "UDP is not handed on", testkit.Value(next.listenPackets(t.Context(), "dns", "dns.listen", "127.0.0.1:0", nil))(t)[0], packets[0])
	if l, err := next.listen(t.Context(), "smtps", "smtp.tls_listen", tcp.Addr().String(), ""); err == nil {
		l[0].Close()
		t.Error("an address that is taken is opened")
	}
}

// The address that is written is the one that is bound: Go opens both families for either of the two that mean any
// address.
func TestAnyAddressIsOfItsFamily(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6")
	} else {
		l.Close()
	}
	for _, tt := range []struct {
		address   string
		four, six bool
	}{{"0.0.0.0:0", true, false}, {"[::ffff:0.0.0.0]:0", true, false}, {"[::]:0", false, true}, {":0", true, true}, {"127.0.0.1:0", true, false}, {"[::1]:0", false, true}} {
		s := sockets{open: map[place]socket{}}
		listeners := testkit.Value(s.listen(t.Context(), "dns", "dns.listen", tt.address, ""))(t)
		packets := testkit.Value(s.listenPackets(t.Context(), "dns", "dns.listen", tt.address, listeners))(t)
		_, port, _ := net.SplitHostPort(listeners[0].Addr().String())
		for host, want := range map[string]bool{"127.0.0.1": tt.four, "::1": tt.six} {
			conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
			testkit.Equal(t, fmt.Sprintf("%s answers at %s", tt.address, host), err == nil, want)
			if err == nil {
				conn.Close()
			}
			// Whoever can bind the port is not beside a socket that has it.
			other, err := net.ListenPacket("udp", net.JoinHostPort(host, port))
			testkit.Equal(t, fmt.Sprintf("%s has UDP of %s", tt.address, host), err != nil, want)
			if err == nil {
				other.Close()
			}
		}
		for _, one := range s.open {
			one.close()
		}
		if len(packets) == 0 {
			t.Error("no UDP")
		}
	}
}
