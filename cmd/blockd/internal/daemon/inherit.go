package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blockd/cmd/blockd/internal/upgrade"
)

// inherit takes over the sockets of a predecessor, where there is one.
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
	return nil
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
	if name.Network == "udp" {
		p, err := net.FilePacketConn(one.File)
		if err != nil {
			return err
		}
		open.packets = append(open.packets, p)
	} else {
		l, err := net.FileListener(one.File)
		if err != nil {
			return err
		}
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // until settle: the process before may have to serve on
		}
		open.listeners, open.ours = append(open.listeners, newListener(l)), name.Ours
	}
	s.before[where] = open
	return nil
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

// dup returns a copy of a socket. It is not that of its File method, which would make the socket block for all processes.
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

// settle makes what was received ours, after Ready: sockets that no door has taken are closed, and paths are removed when we end.
func (s *sockets) settle() {
	for where, one := range s.before {
		for _, l := range one.listeners {
			if u, ok := l.Listener.(*net.UnixListener); ok {
				u.SetUnlinkOnClose(one.ours)
			}
		}
		if _, taken := s.open[where]; !taken {
			one.close()
		}
	}
	s.before = nil
}
