package daemon

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"blockd/cmd/blockd/internal/config"
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

func (s socket) close() {
	for _, l := range s.listeners {
		l.Close() // a second time, if it served
	}
	for _, p := range s.packets {
		p.Close()
	}
}

// sockets are all sockets of a daemon by their places, and the only ones that open any. Whoever goes on with other
// doors or in another process begins with sockets of its own, whose before is this set: a place that both name is handed
// on as it is, with the clients that wait in it, and a new one is bound before an old one is given up. Then the one set
// is abandoned or, of the other, what the new one does not have is closed. A set belongs to one goroutine.
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
		if inherited := s.inherited.takeListeners(door); len(inherited) > 0 {
			for _, l := range inherited {
				one.listeners = append(one.listeners, newListener(l))
			}
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

// packetsAlone reports whether a door was handed UDP sockets and no listener, as systemd may do it; then there is no TCP.
func (s *sockets) packetsAlone(door, address string) bool {
	listeners, packets := len(s.inherited.listeners[door]), len(s.inherited.packets[door])
	if s.before != nil {
		listeners += len(s.before[place{door, "tcp", address}].listeners)
		packets += len(s.before[place{door, "udp", address}].packets)
	}
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

// ownListener is a listener of ours. After give, another process has the socket: then no connection comes any more, and those
// that are open go on, until Close.
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

// give leaves the socket to a process that has a copy of it, with its path. It is called once.
func (l *ownListener) give() {
	if u, ok := l.Listener.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
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
