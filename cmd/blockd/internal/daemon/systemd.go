package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// inherited are sockets that were open before this process began, by the names
// that their socket units give them (FileDescriptorName=): "smtp", "smtps", "http",
// "milter", "policy", "socketmap", "tcp", "dns", "resp" and "health". systemd holds them open while blockd is restarted, so that no
// client is refused.
type inherited struct {
	listeners map[string][]net.Listener
	packets   map[string][]net.PacketConn // of UDP
}

// inherit takes over what sd_listen_fds(3) describes; nothing, if this process
// was started in another way.
func inherit() (inherited, error) {
	in := inherited{map[string][]net.Listener{}, map[string][]net.PacketConn{}}
	for _, f := range activation.Files(true) {
		err := in.take(f)
		f.Close()
		if err != nil {
			in.close()
			return inherited{}, fmt.Errorf("inherited socket %q: %w", f.Name(), err)
		}
	}
	return in, nil
}

// take takes over one socket.
func (in inherited) take(f *os.File) error {
	kind, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return err
	}
	if kind == unix.SOCK_DGRAM {
		p, err := net.FilePacketConn(f)
		if err == nil {
			in.packets[f.Name()] = append(in.packets[f.Name()], p)
		}
		return err
	}
	l, err := net.FileListener(f)
	if err == nil {
		in.listeners[f.Name()] = append(in.listeners[f.Name()], l)
	}
	return err
}

// takeListeners takes the listeners of a door out of those that nobody has taken.
func (in inherited) takeListeners(name string) []net.Listener {
	defer delete(in.listeners, name)
	return in.listeners[name]
}

// takePackets is takeListeners for UDP.
func (in inherited) takePackets(name string) []net.PacketConn {
	defer delete(in.packets, name)
	return in.packets[name]
}

// unused reports listeners that no door has taken: clients would connect to them
// and wait for ever.
func (in inherited) unused() error {
	names := slices.Sorted(maps.Keys(in.listeners))
	names = append(names, slices.Sorted(maps.Keys(in.packets))...)
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("inherited sockets %q belong to no door that the configuration opens; shut their units "+
		"(systemctl disable --now blockd-policy.socket), or open the doors (smtp: smtp.listen, smtps: smtp.tls_listen, http: http.listen, milter: milter.listen, "+
		"policy, socketmap, tcp: postfix.policy_listen, …, dns: dns.listen, resp: resp.listen, receipts: receipts.listen, health: health.listen)", names)
}

func (in inherited) close() {
	for _, listeners := range in.listeners {
		for _, l := range listeners {
			l.Close()
		}
	}
	for _, packets := range in.packets {
		for _, p := range packets {
			p.Close()
		}
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
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		alive()
		s.tell(sdnotify.SdNotifyWatchdog)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
