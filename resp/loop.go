package resp

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxReady is how many sockets one system call tells of at most.
	maxReady = 128
	// tick is how often a loop looks for connections whose time is over, stopTick the same at a stop.
	tick     = time.Second
	stopTick = graceTime / 2
)

// loop answers its connections in one goroutine, each as far as its socket takes and gives octets. It waits for
// none of them. It runs while it has connections.
//
// With a goroutine for each connection, a command that came alone cost 14 µs of processor time. The command itself
// was 0.6 µs of them, and the most of the rest went into waking goroutines and threads
// (docs/decisions/0039-resp-door.md).
type loop struct {
	desk  // of the goroutine
	hurry atomic.Bool

	mu     sync.Mutex
	poller *poller       // nil: the loop does not run
	conns  map[int]*conn // by file descriptor
	swept  []*conn       // the memory of sweep
}

// desk has the buffers of one turn, which connections use one after another.
type desk struct {
	input [inputSize]byte
	out   []byte
	args  [][]byte
	batch *batch
}

// enter has the loop answer a connection.
func (l *loop) enter(c *conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poller == nil {
		p, err := newPoller()
		if err != nil {
			return err
		}
		l.poller, l.conns = p, map[int]*conn{}
		go l.run(p)
	}
	if err := l.poller.add(c.fd); err != nil {
		return err
	}
	l.conns[c.fd] = c
	return nil
}

// stop has the loop look for connections that have to end. Any goroutine may call it.
func (l *loop) stop() {
	l.hurry.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poller != nil {
		l.poller.wake()
	}
}

func (l *loop) run(p *poller) {
	for last := time.Now(); ; {
		ready, err := p.wait(l.pause())
		now := time.Now()
		for _, fd := range ready {
			if c := l.of(fd); c != nil {
				l.after(c, c.turn(&l.desk, now))
			}
		}
		if err != nil || now.Sub(last) >= l.pause() {
			l.sweep(now, err)
			last = now
		}
		if l.leave(p) {
			return
		}
	}
}

// pause is the time between two looks at all connections.
func (l *loop) pause() time.Duration {
	if l.hurry.Load() {
		return stopTick
	}
	return tick
}

func (l *loop) of(fd int) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conns[fd]
}

// sweep ends the connections whose time is over, or all of them for an error.
func (l *loop) sweep(now time.Time, err error) {
	l.mu.Lock()
	for _, c := range l.conns {
		l.swept = append(l.swept, c)
	}
	l.mu.Unlock()
	for _, c := range l.swept {
		if err != nil {
			l.after(c, err)
			continue
		}
		l.after(c, c.overdue(&l.desk, now))
	}
	clear(l.swept)
	l.swept = l.swept[:0]
}

// after ends a connection for an error.
func (l *loop) after(c *conn, err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	delete(l.conns, c.fd)
	l.poller.remove(c.fd)
	l.mu.Unlock()
	c.ended <- err
}

// leave ends the loop if it has no connection.
func (l *loop) leave(p *poller) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) > 0 {
		return false
	}
	p.close()
	l.poller = nil
	return true
}

// detach takes a socket out of the runtime's own poller, which would be told of each octet too: its threads would
// wake for nothing (16.6 µs a command in place of 11.1). The copy of conn's descriptor is non-blocking too.
func detach(conn net.Conn) (fd int, err error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return -1, net.UnknownNetworkError("no socket")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	if err := raw.Control(func(of uintptr) { fd, failed = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return -1, err
	}
	if failed != nil {
		return -1, os.NewSyscallError("fcntl", failed)
	}
	return fd, conn.Close()
}

// attach makes a connection of a descriptor again, and closes it.
func attach(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "resp")
	defer f.Close()
	return net.FileConn(f)
}
