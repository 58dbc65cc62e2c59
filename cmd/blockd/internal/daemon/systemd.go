package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sdnotify "github.com/coreos/go-systemd/v22/daemon"
)

// inherited are sockets that were open before this process began, by the names that their socket units give them
// (FileDescriptorName=): "smtp", "smtps", "http", "milter", "policy", "socketmap", "tcp", "dns", "resp" and "health".
// systemd holds them open while blockd is restarted, so that no client is refused.
type inherited map[string]socket

// inherit takes over what sd_listen_fds(3) describes; nothing, if this process
// was started in another way.
func inherit() (inherited, error) {
	in := inherited{}
	for _, f := range activation.Files(true) {
		one := in[f.Name()]
		err := one.add(f)
		if in[f.Name()] = one; err != nil {
			in.close()
			return nil, fmt.Errorf("inherited socket %q: %w", f.Name(), err)
		}
	}
	return in, nil
}

// takeListeners takes the listeners of a door out of those that nobody has taken.
func (in inherited) takeListeners(door string) []*ownListener {
	one := in[door]
	in.leave(door, socket{packets: one.packets})
	return one.listeners
}

// takePackets is takeListeners for UDP.
func (in inherited) takePackets(door string) []net.PacketConn {
	one := in[door]
	in.leave(door, socket{listeners: one.listeners})
	return one.packets
}

func (in inherited) leave(door string, rest socket) {
	if len(rest.listeners)+len(rest.packets) == 0 {
		delete(in, door)
	} else {
		in[door] = rest
	}
}

// unused reports listeners that no door has taken: clients would connect to them
// and wait for ever.
func (in inherited) unused() error {
	if len(in) == 0 {
		return nil
	}
	return fmt.Errorf("inherited sockets %q belong to no door that the configuration opens; shut their units "+
		"(systemctl disable --now blockd-policy.socket), or open the doors (smtp: smtp.listen, smtps: smtp.tls_listen, http: http.listen, milter: milter.listen, "+
		"policy, socketmap, tcp: postfix.policy_listen, …, dns: dns.listen, resp: resp.listen, receipts: receipts.listen, health: health.listen)", slices.Sorted(maps.Keys(in)))
}

func (in inherited) close() {
	for _, one := range in {
		one.close()
	}
}

// listen opens a listener, or says in one line why it cannot be opened.
func listen(ctx context.Context, key, address string) (net.Listener, error) {
	var lc net.ListenConfig
	if strings.HasPrefix(key, "smtp.") || strings.HasPrefix(key, "milter.") {
		lc.KeepAlive = -1 // each wait in a session has a limit of its own; probes are four system calls a connection
	}
	l, err := lc.Listen(ctx, family("tcp", address), address)
	if err != nil {
		return nil, cannotListen(key, address, err)
	}
	return l, nil
}

// family is the network of an address as it is written: 0.0.0.0 is IPv4 and [::] IPv6, where Go opens both for
// either; no host at all is both.
func family(network, address string) string {
	at, err := netip.ParseAddrPort(address)
	switch {
	case err != nil || !at.Addr().Unmap().IsUnspecified():
		return network
	case at.Addr().Unmap().Is4():
		return network + "4"
	}
	return network + "6"
}

// cannotListen says in one line why a door cannot be opened.
func cannotListen(key, address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s: %s is in use; is another blockd running?", key, address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s: no permission for %s; ports below 1024 need the capability CAP_NET_BIND_SERVICE", key, address)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// supervisor is the init system, if it wants to be told how we are (sd_notify(3)).
type supervisor struct{ log *slog.Logger }

// tell sends a state. Without NOTIFY_SOCKET there is nobody to tell.
func (s supervisor) tell(state string) {
	if _, err := sdnotify.SdNotify(false, state); err != nil {
		s.log.Warn("init system not told", slog.String("state", state), slog.Any("error", err))
	}
}

func (s supervisor) ready() { s.tell(sdnotify.SdNotifyReady + "\nSTATUS=filtering mail") }
func (s supervisor) stopping() {
	s.tell(sdnotify.SdNotifyStopping + "\nSTATUS=waiting for transactions")
}

// succeeded tells that another process is the main one from here on.
func (s supervisor) succeeded(pid int) {
	s.tell(fmt.Sprintf("MAINPID=%d\n%s", pid, sdnotify.SdNotifyReady))
}

// reloading tells that a reload has begun; ready tells that it is over.
func (s supervisor) reloading() {
	s.tell(sdnotify.SdNotifyReloading + "\n" + sdnotify.SdNotifyMonotonicUsec() + "STATUS=reading configuration and lists")
}

// watch says that we are alive, twice as often as asked for (WatchdogSec=), as
// long as alive returns: it goes through the locks that everything depends on, so
// that a process that hangs in one of them is started anew.
func (s supervisor) watch(ctx context.Context, alive func()) {
	interval, err := sdnotify.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("watchdog of the init system not understood", slog.Any("error", err))
	}
	if err != nil || interval <= 0 {
		return
	}
	tick := time.Tick(interval / 2)
	for {
		alive()
		s.tell(sdnotify.SdNotifyWatchdog)
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}
