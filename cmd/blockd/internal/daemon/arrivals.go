package daemon

import (
	"net"
	"os"
	"sync"
	"syscall"
)

// arrivals is a listener for connections that another process has handed over. It is for one door.
type arrivals struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// andArrivals returns listeners, and one more where a predecessor may hand over connections of that door.
func (u *upgrading) andArrivals(door string, listeners []net.Listener) []net.Listener {
	if u.predecessor == nil {
		return listeners
	}
	if u.arrivals == nil {
		u.arrivals = map[string]*arrivals{}
	}
	a := &arrivals{conns: make(chan net.Conn), closed: make(chan struct{})}
	u.arrivals[door] = a
	return append(listeners[:len(listeners):len(listeners)], a)
}

// arrive is upgrade.Follower.Conn.
func (u *upgrading) arrive(door string, file *os.File) {
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return
	}
	if a := u.arrivals[door]; a != nil {
		select {
		case a.conns <- conn:
			return
		case <-a.closed:
		}
	}
	conn.Close() // the door is shut here
}

// leave hands a connection over to the successor, if there is one that answers.
func (u *upgrading) leave(door string, conn net.Conn) bool {
	_, to := u.hasYielded()
	raw, ok := conn.(syscall.Conn)
	if to == nil || !ok {
		return false
	}
	f, err := dup(raw)
	if err != nil {
		return false
	}
	defer f.Close()
	return to.Conn(door, int(f.Fd())) == nil
}

// Accept implements net.Listener.
func (a *arrivals) Accept() (net.Conn, error) {
	select {
	case conn := <-a.conns:
		return conn, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (a *arrivals) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

// Addr implements net.Listener.
func (a *arrivals) Addr() net.Addr { return arrivalsAddr{} }

type arrivalsAddr struct{}

func (arrivalsAddr) Network() string { return "handed over" }
func (arrivalsAddr) String() string  { return "connections of the process before" }
