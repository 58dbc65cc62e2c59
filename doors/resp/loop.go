package resp

import (
	"net"
	"os"
	"runtime"
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

// heavySize is the octets of one read from which on a connection may have a goroutine of its own for a turn: some
// 50 commands, which cost ten times what it costs to wake the goroutine.
const heavySize = 4 << 10

// loop answers all connections in one goroutine, each as far as its socket takes and gives octets. It waits for none of them. It
// runs while it has connections. Those that send long pipelines are answered beside it, by a few goroutines for each
// other processor.
//
// With a goroutine for each connection, a command that came alone cost 14 µs of processor time. The command itself was
// 0.6 µs of them, and most of the rest went into waking goroutines and threads (docs/decisions/0039-resp-door.md).
type loop struct {
	desk  *desk // of the loop itself
	hurry atomic.Bool
	waits bool // look-ups may wait

	mu     sync.Mutex
	poller *poller       // nil: the loop does not run
	conns  map[int]*conn // by file descriptor
	spare  []*desk       // for goroutines beside the loop
	swept  []*conn       // the memory of sweep
}

// mostWaiting is how many clients may wait for look-ups at once, beside the one that the loop itself answers.
const mostWaiting = 64

func newLoop(waits bool) *loop {
	// Four for each: a processor that has done with one finds the next, and need not wait until the loop looks.
	l, spare := &loop{desk: new(desk), conns: map[int]*conn{}, waits: waits}, 4*(runtime.GOMAXPROCS(0)-1)
	if waits {
		spare = mostWaiting
	}
	for range spare {
		l.spare = append(l.spare, new(desk))
	}
	return l
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
		l.poller = p
		go l.run(p)
	}
	if err := l.poller.add(c.fd, false); err != nil {
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
			l.serve(fd, now)
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

// serve answers a connection, here or in a goroutine of its own.
func (l *loop) serve(fd int, now time.Time) {
	l.mu.Lock()
	c, d := l.conns[fd], l.desk
	switch last := len(l.spare) - 1; {
	case c == nil || c.away:
		c = nil
	case (c.heavy || l.waits) && last >= 0:
		d, l.spare = l.spare[last], l.spare[:last]
		c.away = true
		l.poller.remove(fd)
	}
	l.mu.Unlock()
	switch {
	case c == nil:
	case d == l.desk:
		l.after(c, c.turn(d, now))
	default:
		go func() { l.back(c, d, c.turn(d, now)) }()
	}
}

// back gives a connection back to the loop after a turn beside it, which may go on with it at once.
func (l *loop) back(c *conn, d *desk, err error) {
	l.mu.Lock()
	l.spare = append(l.spare, d)
	if err == nil {
		c.output = c.outward()
		err = l.poller.add(c.fd, c.output)
	}
	c.away = err != nil
	l.mu.Unlock()
	if err != nil {
		l.end(c, err)
	}
}

// pause is the time between two looks at all connections.
func (l *loop) pause() time.Duration {
	if l.hurry.Load() {
		return stopTick
	}
	return tick
}

// sweep ends the connections whose time is over, or all of them for an error.
func (l *loop) sweep(now time.Time, err error) {
	l.mu.Lock()
	for _, c := range l.conns {
		if !c.away {
			l.swept = append(l.swept, c)
		}
	}
	l.mu.Unlock()
	for _, c := range l.swept {
		if err != nil {
			l.end(c, err)
			continue
		}
		l.after(c, c.overdue(l.desk, now))
	}
	clear(l.swept)
	l.swept = l.swept[:0]
}

// after watches for what a connection waits for now, or ends it for an error.
func (l *loop) after(c *conn, err error) {
	if output := c.outward(); err == nil && output != c.output {
		c.output = output
		err = l.poller.change(c.fd, output)
	}
	if err != nil {
		l.end(c, err)
	}
}

// end gives a connection to its Run.
func (l *loop) end(c *conn, err error) {
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
	defer conn.Close()
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
	return fd, nil
}

// attach makes a connection of a descriptor again, and closes it.
func attach(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "resp")
	defer f.Close()
	return net.FileConn(f)
}
