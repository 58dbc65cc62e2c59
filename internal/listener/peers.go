package listener

import (
	"net"
	"net/netip"
	"os"
	"slices"
)

// Loopback returns the networks of this machine, whom doors that no setting opens
// wider serve.
func Loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// Admits reports whether a peer may talk to us: by TCP it is in one of the networks.
// Who may use a Unix socket is said by its mode and owner. A peer of no address, or of
// another kind, may not.
func Admits(networks []netip.Prefix, peer net.Addr) bool {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return peer != nil && peer.Network() == "unix"
	}
	return Within(networks, tcp.AddrPort().Addr())
}

// Private reports whether no other user of this machine can be at the other end of an accepted connection: it came by
// a Unix socket that its owner and group alone may open, or by TCP from another machine. By TCP from this one anybody
// may have come.
func Private(c net.Conn) bool {
	switch local := c.LocalAddr().(type) {
	case *net.UnixAddr:
		info, err := os.Stat(local.Name)
		return err == nil && info.Mode().Perm()&0o007 == 0
	case *net.TCPAddr:
		peer, ok := c.RemoteAddr().(*net.TCPAddr)
		return ok && !local.IP.IsLoopback() && !peer.IP.IsLoopback() && !peer.IP.Equal(local.IP) && !ofThisMachine(peer.IP)
	}
	return false
}

// ofThisMachine reports whether an address is one of this machine's, or may be: a local user may connect from any of
// them.
func ofThisMachine(ip net.IP) bool {
	all, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(all, func(a net.Addr) bool {
		own, ok := a.(*net.IPNet)
		return ok && own.IP.Equal(ip)
	})
}

// Network is what counts as one client: an IPv4 address or an IPv6 /64, the smallest network
// that a provider gives to a customer. With single addresses, each host would count as 2^64
// clients. It is invalid for the zero address.
func Network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	p, _ := ip.Prefix(min(ip.BitLen(), 64))
	return p
}

// Within reports whether an address is in one of the networks. That of an IPv4 peer
// may be written as IPv6 (RFC 4291, section 2.5.5.2), and a zone makes no difference.
// The zero address is in none.
func Within(networks []netip.Prefix, a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}
