package daemon

import (
	"context"
	"errors"
	"net"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"blockd/doors/dnsbl"
)

// openDNS makes what [dns] asks for.
func (d *daemon) openDNS(ctx context.Context) (err error) {
	c, o := d.config.DNS, &d.dns
	if !c.Open() {
		return nil
	}
	if !d.sockets.packetsAlone("dns", c.Listen) {
		if o.listeners, err = d.sockets.listen(ctx, "dns", "dns.listen", c.Listen, ""); err != nil {
			return err
		}
	}
	if o.packets, err = d.sockets.listenPackets(ctx, "dns", "dns.listen", c.Listen, o.listeners); err != nil {
		return err
	}
	s := d.config.DNSDoor()
	s.Host, s.Strangers = d.hostname, d.turnAway("dns")
	srv := dnsbl.New(s, d.lists.Live, d.checker, d.metrics, d.log)
	o.serve = func(ctx context.Context) error { return srv.Serve(ctx, o.packets, o.listeners) }
	d.locks = append(d.locks, func() { srv.Connections() })
	return nil
}

// packetSockets is the number of UDP sockets at one address, each with one reader: one for two
// processors. With as many as processors there were a tenth fewer answers, since each reader found
// fewer queries to answer at once; and beyond eight the network is busier than they are.
func packetSockets() int { return min(max(runtime.GOMAXPROCS(0)/2, 1), 8) }

// listenPackets opens UDP sockets at one address, among which the system divides the clients. The
// caller listens there by TCP, which no other process can share: so none shares this port by mistake.
func listenPackets(ctx context.Context, key, address string) (all []net.PacketConn, err error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return errors.Join(err, failed)
	}}
	for range packetSockets() {
		p, err := lc.ListenPacket(ctx, family("udp", address), address)
		if err != nil {
			for _, p := range all {
				p.Close()
			}
			return nil, cannotListen(key, address, err)
		}
		all = append(all, p)
	}
	return all, nil
}
