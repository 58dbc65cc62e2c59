package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// maxAddresses bounds how many addresses of one name are tried. At 5 s each, a
// name with only dead addresses costs a client 40 s, which clients wait.
const maxAddresses = 8

// dial connects to the first address that answers, each within DialTimeout: a
// net.Dialer would share one timeout among all of them.
func (d *Dialer) dial(ctx context.Context) (net.Conn, error) {
	if d.set.Dial != nil {
		ctx, cancel := context.WithTimeout(ctx, d.set.DialTimeout)
		defer cancel()
		return d.set.Dial(ctx)
	}
	// Keep-alive probes are off: each wait for upstream has a limit of its own, and
	// turning them on takes four system calls a connection.
	dialer := net.Dialer{Timeout: d.set.DialTimeout, KeepAlive: -1}
	if d.set.Network == "unix" {
		return dialer.DialContext(ctx, "unix", d.set.Address)
	}
	addrs, err := d.resolve(ctx)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		conn, err := dialer.DialContext(ctx, "tcp", a.String())
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// resolve returns the TCP addresses of upstream, at least one.
func (d *Dialer) resolve(ctx context.Context) ([]netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(d.set.Address); err == nil { // no session waits for a resolver
		return []netip.AddrPort{netip.AddrPortFrom(a.Addr().Unmap(), a.Port())}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.set.DialTimeout)
	defer cancel()
	host, service, err := net.SplitHostPort(d.set.Address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		addrs[i] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return addrs, nil
}

// ErrOwnListener reports an upstream that is blockd itself: each mail would
// come back and be relayed again, without end.
var ErrOwnListener = errors.New("upstream is an address that blockd listens on")

// CheckListeners returns ErrOwnListener if upstream's address is one of listen,
// the addresses of the listeners as bound; then Open fails with it too, until a
// later check finds another address. A listener on all addresses stands for each
// address of this machine. It sees through names, but not through port
// forwarding or another relay in between.
func (d *Dialer) CheckListeners(ctx context.Context, listen []net.Addr) error {
	err := d.findListener(ctx, listen)
	if own := errors.Is(err, ErrOwnListener); own || err == nil {
		d.loop.Store(own)
	}
	return err
}

// findListener is CheckListeners without its effect on Open.
func (d *Dialer) findListener(ctx context.Context, listen []net.Addr) error {
	if d.set.Dial != nil {
		return nil
	}
	if d.set.Network == "unix" {
		for _, l := range listen {
			if l.Network() == "unix" && l.String() == d.set.Address {
				return fmt.Errorf("%w: %s", ErrOwnListener, l)
			}
		}
		return nil
	}
	addrs, err := d.resolve(ctx)
	if err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	for _, l := range listen {
		tcp, ok := l.(*net.TCPAddr)
		if !ok {
			continue
		}
		at := tcp.AddrPort()
		for _, up := range addrs {
			if up.Port() == at.Port() && reaches(up.Addr(), at.Addr().Unmap()) {
				return fmt.Errorf("%w: %s", ErrOwnListener, l)
			}
		}
	}
	return nil
}

// reaches reports whether a connection to the address to arrives at a listener
// on at.
func reaches(to, at netip.Addr) bool {
	if to.IsUnspecified() { // the system connects to loopback
		return at.IsUnspecified() || at.IsLoopback()
	}
	if !at.IsUnspecified() {
		return to.WithZone("") == at.WithZone("")
	}
	if to.IsLoopback() { // all of 127.0.0.0/8 is local, though one address is listed
		return true
	}
	return ours(to)
}

// local reports whether the other end of a connection to at is on this machine.
func (d *Dialer) local(at net.Addr) bool {
	if d.set.Dial != nil || d.set.Network == "unix" {
		return true
	}
	tcp, ok := at.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// ours reports whether an address is one of this machine's. The system reaches those from the address itself, which it
// says without a packet that is sent. To list all addresses would want a netlink socket, which the shipped unit forbids; to bind
// the address would succeed for others too where net.ipv4.ip_nonlocal_bind is set.
func ours(to netip.Addr) bool {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	if err != nil { // no way leads there
		return false
	}
	defer conn.Close()
	from, ok := conn.LocalAddr().(*net.UDPAddr)
	return ok && from.AddrPort().Addr().Unmap().WithZone("") == to.Unmap().WithZone("")
}
