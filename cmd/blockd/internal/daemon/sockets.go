package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
)

// place is where clients come in, in the words of the configuration: a configuration that names the same place for
// the same door means the same socket, also where the system has chosen the port ("127.0.0.1:0").
type place struct {
	door    string // as FileDescriptorName= of a socket unit says it: "smtp", "smtps", "http", …; "socket" is http.socket
	network string // "tcp", "unix" or "udp"
	address string // host and port, or the path
}

// socket is what is open at a place. systemd may hand over several, and UDP has one for two processors.
type socket struct {
	listeners []*ownListener
	packets   []net.PacketConn // of UDP
	ours      bool             // a Unix socket that blockd has made, whose path goes with its last process
}

// add adds a copy of a file's socket, and closes the file.
func (s *socket) add(f *os.File) error {
	defer f.Close()
	raw, err := f.SyscallConn() // Fd would make the socket block, for all processes
	if err != nil {
		return err
	}
	var kind int
	failed := raw.Control(func(fd uintptr) { kind, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE) })
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	if kind == unix.SOCK_DGRAM {
		p, err := net.FilePacketConn(f)
		if err == nil {
			s.packets = append(s.packets, p)
		}
		return err
	}
	l, err := net.FileListener(f)
	if err == nil {
		s.listeners = append(s.listeners, newListener(l))
	}
	return err
}

func (s socket) close() {
	for _, l := range s.listeners {
		l.Close() // a second time, if it served
	}
	for _, p := range s.packets {
		p.Close()
	}
}

// sockets are all sockets of a daemon by their places, and the only ones that open any. Whoever goes on with other
// doors or in another process begins with sockets of its own, whose before is this set: a place that both name is
// handed on as it is, with the clients that wait in it, and a new one is bound before an old one is given up. Then the
// one set is abandoned or, of the other, what the new one does not have is closed. A set belongs to one goroutine.
type sockets struct {
	inherited inherited // by the names of doors; what they take is not bound
	before    map[place]socket
	open      map[place]socket
}

// listen opens a door at address: a host and a port, or config.UnixPrefix and a path, whose socket is that of group.
// Inherited listeners of the door's name stand in for it. An empty address is a door that is shut.
func (s *sockets) listen(ctx context.Context, door, key, address, group string) ([]net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	where := place{door, "tcp", address}
	path, isUnix := strings.CutPrefix(address, config.UnixPrefix)
	if isUnix {
		where = place{door, "unix", path}
	}
	one, err := s.at(where, func() (one socket, err error) {
		var l net.Listener
		if one.listeners = s.inherited.takeListeners(door); len(one.listeners) > 0 {
			return one, nil
		}
		if !isUnix {
			l, err = listen(ctx, key, address)
		} else if l, err = listenUnix(ctx, path, group); err != nil {
			err = fmt.Errorf("%s: %w%s", key, err, unitOf(door, err))
		}
		if err != nil {
			return socket{}, err
		}
		one.listeners, one.ours = []*ownListener{newListener(l)}, isUnix
		return one, nil
	})
	var all []net.Listener
	for _, l := range one.listeners {
		all = append(all, l)
	}
	return all, err
}

// listenPackets opens the UDP sockets of a door at address; inherited ones of its name stand in for them. bound is
// where its listener is, which has the port that the system has chosen.
func (s *sockets) listenPackets(ctx context.Context, door, key, address string, bound []net.Listener) ([]net.PacketConn, error) {
	one, err := s.at(place{door, "udp", address}, func() (one socket, err error) {
		if one.packets = s.inherited.takePackets(door); len(one.packets) > 0 {
			return one, nil
		}
		if len(bound) > 0 {
			_, port, _ := net.SplitHostPort(bound[0].Addr().String())
			host, _, _ := net.SplitHostPort(address)
			address = net.JoinHostPort(host, port)
		}
		one.packets, err = listenPackets(ctx, key, address)
		return one, err
	})
	return one.packets, err
}

// packetsAlone reports whether a door was handed UDP sockets and no listener, as systemd may do it; then there is no
// TCP.
func (s *sockets) packetsAlone(door, address string) bool {
	listeners := len(s.inherited[door].listeners) + len(s.before[place{door, "tcp", address}].listeners)
	packets := len(s.inherited[door].packets) + len(s.before[place{door, "udp", address}].packets)
	return packets > 0 && listeners == 0
}

// at returns what is open at a place: that of before, or what bind opens.
func (s *sockets) at(where place, bind func() (socket, error)) (one socket, err error) {
	one, has := s.before[where]
	if !has {
		if one, err = bind(); err != nil {
			return socket{}, err
		}
	}
	s.open[where] = one
	return one, nil
}

// ownListener is a listener of ours. After give, another process has the socket: then no connection comes any more,
// and those that are open go on, until Close.
type ownListener struct {
	net.Listener
	given, closed chan struct{}
	once          sync.Once
}

func newListener(l net.Listener) *ownListener {
	return &ownListener{Listener: l, given: make(chan struct{}), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *ownListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		select {
		case <-l.given:
			<-l.closed
			return nil, net.ErrClosed
		default:
		}
	}
	return conn, err
}

// Close implements net.Listener.
func (l *ownListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close() // a second time, if it was given
}

// unlink says whether the path of a Unix socket goes when it is closed.
func (l *ownListener) unlink(on bool) {
	if u, ok := l.Listener.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(on)
	}
}

// give leaves the socket to a process that has a copy of it, with its path. It is called once.
func (l *ownListener) give() {
	l.unlink(false)
	close(l.given)
	l.Listener.Close()
}

// close closes all of them, and what was inherited and not taken.
func (s *sockets) close() {
	for _, one := range s.open {
		one.close()
	}
	for where, one := range s.before {
		if _, taken := s.open[where]; !taken {
			one.close()
		}
	}
	s.inherited.close()
}

// inheritSockets takes over the sockets of a predecessor, where there is one, and those of the init system.
func (d *daemon) inheritSockets() error {
	p, sockets, err := upgrade.Inherit()
	if err != nil {
		return err
	}
	d.upgrade.predecessor, d.upgrade.parent = p, os.Getppid()
	d.sockets.before = map[place]socket{}
	for _, s := range sockets {
		if err := d.sockets.receive(s); err != nil {
			return fmt.Errorf("socket of the process before, %s: %w", s.Name, err)
		}
	}
	d.sockets.open = map[place]socket{}
	d.sockets.inherited, err = inherit()
	return err
}

// sent is the name under which a socket is handed over.
type sent struct {
	Door    string `json:"door"`
	Network string `json:"network"`
	Address string `json:"address"`
	Ours    bool   `json:"ours,omitempty"` // a Unix socket whose path is removed by the last process
}

// receive puts one socket of a predecessor into before.
func (s *sockets) receive(one upgrade.Socket) error {
	defer one.File.Close()
	var name sent
	if err := json.Unmarshal([]byte(one.Name), &name); err != nil {
		return err
	}
	where := place{name.Door, name.Network, name.Address}
	open := s.before[where]
	open.ours = name.Ours
	err := open.add(one.File)
	s.before[where] = open
	for _, l := range open.listeners {
		l.unlink(false) // until settle: the process before may have to serve on
	}
	return err
}

// copies returns a copy of each socket, for a successor. Those of before that no door has taken are not ours to give.
func (s *sockets) copies() (all []upgrade.Socket, err error) {
	add := func(where place, ours bool, from any) {
		if err != nil {
			return
		}
		conn, ok := from.(syscall.Conn)
		if !ok {
			err = fmt.Errorf("%T cannot be handed over", from)
			return
		}
		var f *os.File
		if f, err = dup(conn); err != nil {
			return
		}
		name, _ := json.Marshal(sent{where.door, where.network, where.address, ours}) // texts alone
		all = append(all, upgrade.Socket{Name: string(name), File: f})
	}
	for where, one := range s.open {
		for _, l := range one.listeners {
			add(where, one.ours, l.Listener)
		}
		for _, p := range one.packets {
			add(where, false, p)
		}
	}
	if err != nil {
		closeFiles(all)
		return nil, err
	}
	return all, nil
}

// dup returns a copy of a socket. It is not that of its File method, which would make the socket block for all
// processes.
func dup(conn syscall.Conn) (f *os.File, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		var n int
		if n, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			f = os.NewFile(uintptr(n), "socket")
		}
	})
	return f, errors.Join(failed, err)
}

func closeFiles(all []upgrade.Socket) {
	for _, s := range all {
		s.File.Close()
	}
}

// give leaves all sockets to a successor, which has copies of them. Those of UDP are closed by their door, when it has
// answered what it has read.
func (s *sockets) give() {
	for _, one := range s.open {
		for _, l := range one.listeners {
			l.give()
		}
		for _, p := range one.packets {
			p.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// settle makes what was received ours, after Ready: sockets that no door has taken are closed, and paths are removed
// when we end.
func (s *sockets) settle() {
	for where, one := range s.before {
		for _, l := range one.listeners {
			l.unlink(one.ours)
		}
		if _, taken := s.open[where]; !taken {
			one.close()
		}
	}
	s.before = nil
}

// SocketMode is who may connect to a Unix socket: the daemon's user, and the group of the socket.
const SocketMode fs.FileMode = 0o660

// listenUnix opens a socket of a group, a name or a number; "" is that of the process. One that a process has left
// behind is put out of the way; one that somebody listens on is not.
func listenUnix(ctx context.Context, path, group string) (net.Listener, error) {
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	l, err := bindUnix(ctx, path)
	if err != nil {
		return nil, err
	}
	if group != "" {
		var gid int
		if gid, err = GroupID(group); err == nil {
			err = os.Lchown(path, -1, gid)
		}
	}
	if err == nil {
		err = os.Chmod(path, SocketMode) // behind chown, which may take bits away
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// bindUnix opens a socket that nobody may connect to yet. Its place in the file
// system takes the mode that its descriptor has at bind, less the umask; systems
// other than Linux do not know of that, and say so by an error that does not matter.
func bindUnix(ctx context.Context, path string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0) })
	}}
	return lc.Listen(ctx, "unix", path)
}

// clearSocket removes a socket that nobody listens on.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there, and no socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%s is in use; is another blockd running?", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// unitOf names the unit that opens a door where the daemon itself may make no socket; "" if that is not what err is
// about.
func unitOf(door string, err error) string {
	forbidden := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
	if !forbidden || door != "milter" && door != "policy" {
		return ""
	}
	return fmt.Sprintf("; systemctl enable --now blockd-%s.socket makes it", door)
}

// GroupID is the number of a group that is given by its name or number.
func GroupID(name string) (int, error) {
	if gid, err := strconv.Atoi(name); err == nil {
		return gid, nil
	}
	group, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(group.Gid)
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
