package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"blockd/internal/testkit"
)

// A connection is this process's own while it is open, by both parts of its address.
func TestOwnConnections(t *testing.T) {
	var own ownConnections
	l := testkit.Listen(t)
	dial := func() (net.Conn, netip.AddrPort) {
		t.Helper()
		conn := testkit.Value(net.Dial("tcp", l.Addr().String()))(t)
		t.Cleanup(func() { conn.Close() })
		return own.add(conn), conn.LocalAddr().(*net.TCPAddr).AddrPort()
	}
	a, at := dial()
	b, bt := dial()
	has := func(p netip.AddrPort, want bool) {
		t.Helper()
		testkit.Equal(t, fmt.Sprintf("has(%v)", p), own.has(p), want)
	}
	has(at, true)
	has(bt, true)
	has(netip.AddrPortFrom(at.Addr(), 1), false)
	has(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), at.Port()), false)
	has(netip.AddrPort{}, false)
	a.Close()
	a.Close()
	has(at, false)
	has(bt, true)
	b.Close()
	has(bt, false)
}
