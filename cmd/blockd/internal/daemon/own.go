package daemon

import (
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
)

// ownConnections are the SMTP connections that this process has made to send its own mail, by their local addresses: mail that
// comes to a door by one of them is its own. A header could be written by anybody; an address and port that this process holds
// cannot be another's. It is safe for concurrent use.
type ownConnections struct {
	open atomic.Pointer[[]netip.AddrPort]
}

// has reports whether a client is this process.
func (o *ownConnections) has(client netip.AddrPort) bool {
	open := o.open.Load()
	return open != nil && slices.Contains(*open, client)
}

// add notes a connection until it is closed.
func (o *ownConnections) add(conn net.Conn) net.Conn {
	at, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return conn
	}
	local := at.AddrPort()
	local = netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), local.Port())
	o.change(func(all []netip.AddrPort) []netip.AddrPort { return append(all, local) })
	return &ownConnection{Conn: conn, of: o, local: local}
}

func (o *ownConnections) change(f func([]netip.AddrPort) []netip.AddrPort) {
	for {
		was := o.open.Load()
		var all []netip.AddrPort
		if was != nil {
			all = slices.Clone(*was)
		}
		if all = f(all); o.open.CompareAndSwap(was, &all) {
			return
		}
	}
}

type ownConnection struct {
	net.Conn
	of    *ownConnections
	local netip.AddrPort
	gone  atomic.Bool
}

// Close forgets the connection.
func (c *ownConnection) Close() error {
	if !c.gone.Swap(true) {
		c.of.change(func(all []netip.AddrPort) []netip.AddrPort {
			return slices.DeleteFunc(all, func(a netip.AddrPort) bool { return a == c.local })
		})
	}
	return c.Conn.Close()
}
