package resp

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tidwall/redcon"
	"golang.org/x/sys/unix"

	"blockd/internal/listener"
)

// The time limits of a connection.
const (
	idleTime    = time.Hour        // pools of clients keep connections; a dead peer is found by keepalive probes
	commandTime = 10 * time.Second // from the first octet of a command to its last
	writeTime   = 10 * time.Second // until the peer has taken the answers
	// graceTime is how long an idle connection stays open at a stop, for a
	// question that is already on its way.
	graceTime = 100 * time.Millisecond
)

// The sizes of buffers.
const (
	inputSize = 16 << 10 // holds 250 commands for one sender
	flushSize = 64 << 10 // answers to pipelined commands are sent from here on
	smallRest = 1 << 10  // of an unfinished command, which may wait beyond heldSize
	// heldSize bounds what all connections together hold of unfinished commands and of
	// answers that nobody reads: 64 clients may send the longest command at one time.
	heldSize = 64 << 20
)

// conn reads commands and writes answers. Between two turns of its loop it holds what is unfinished of a command, and
// answers that the peer has not taken, and no buffer.
type conn struct {
	*Server
	client
	writer
	loop          *loop
	fd            int      // of the socket
	socket        net.Conn // until the loop has it
	local, remote net.Addr
	ended         chan error // why the loop has let it go

	in      []byte // the octets read; in[r:] is not answered yet
	r       int
	frame   frame
	args    [][]byte
	batch   *batch
	script  *queue // the rest of EXEC's commands, which come before the input; nil = none
	charged int64  // of Server.held
	heavy   bool   // the last read was long

	away   bool // a goroutine beside the loop has it; under loop.mu
	output bool // the loop watches for room for output, and not for input
	more   bool // it has more to answer than a turn may

	now      time.Time // of this turn
	seen     time.Time // when the peer last sent something
	began    time.Time // when the first octet of an unfinished command came; zero without one
	blocked  time.Time // since when answers wait for the peer; zero = none waits
	grace    time.Time // when it may end, after a stop; zero = there was none
	stopping atomic.Bool
	quit     bool
}

// newConn makes the session of a connection; without one it is for tests.
func newConn(s *Server, nc net.Conn) *conn {
	id := s.clients.Add(1)
	c := &conn{Server: s, loop: s.loop, frame: first(), fd: -1, ended: make(chan error, 1)}
	if nc != nil {
		c.local, c.remote, c.socket = nc.LocalAddr(), nc.RemoteAddr(), nc
	}
	c.client = client{id: id, trusted: c.trusts()}
	return c
}

// trusts reports whether the peer may ask without a password.
func (c *conn) trusts() bool { return c.users.none() || listener.Admits(listener.Loopback(), c.remote) }

// Run answers until the peer, a fault or Stop ends the connection.
func (c *conn) Run() {
	var err error
	if c.fd, err = detach(c.socket); err != nil {
		c.faults.Warn("resp connection cannot be served", slog.Any("error", err))
		return
	}
	c.socket, c.seen = nil, time.Now()
	if err = c.loop.enter(c); err != nil {
		c.faults.Warn("resp connection cannot be served", slog.Any("error", err))
	} else {
		err = <-c.ended
	}
	c.dequeue()
	c.unscript()
	c.charge(0)
	f := fault("")
	if errors.As(err, &f) {
		c.metrics.faults.WithLabelValues(string(f)).Inc()
		c.faults.Warn("resp connection ended", slog.String("peer", c.remote.String()), slog.String("why", string(f)))
	}
	words := farewells[f]
	if words == "" {
		unix.Close(c.fd)
		return
	}
	if nc, err := attach(c.fd); err == nil {
		c.err(words)
		farewell(nc, c.out)
		nc.Close()
	}
}

// farewells are the last words before a connection ends for a fault, as Redis has them.
var farewells = map[fault]string{
	errTooLong:   "ERR Protocol error: too big: at most 1024 arguments, 65536 octets each, 1048576 octets in all, 1024 in a line",
	errMalformed: "ERR Protocol error: want an array of bulk strings, or a line",
	errSlow:      "ERR the command did not come whole within 10 s",
	errMemory:    "TRYAGAIN blockd: too many unfinished commands and unread answers",
	errPasswords: "ERR too many wrong passwords",
	errPanic:     "TRYAGAIN blockd: internal error",
}

// farewell sends the last answers. Then it reads the peer's input for a moment: closing a socket with unread input
// resets the connection, and the answers would be lost.
func farewell(nc net.Conn, answers []byte) {
	nc.SetDeadline(time.Now().Add(time.Second))
	if _, err := nc.Write(answers); err != nil {
		return
	}
	listener.CloseWrite(nc)
	var rest [4 << 10]byte
	for range 64 {
		if _, err := nc.Read(rest[:]); err != nil {
			return
		}
	}
}

// turn answers what has come, as far as the peer takes the answers. After an error the connection has to end.
func (c *conn) turn(d *desk, now time.Time) (err error) {
	c.now, c.more = now, false
	c.args, c.batch, d.args, d.batch = d.args, d.batch, nil, nil // after a panic they are lost: another connection must not find our questions
	if c.out == nil {
		c.out = d.out[:0]
	}
	defer func() {
		if p := recover(); p != nil {
			c.faults.Warn("resp panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err, c.batch, c.args = errPanic, nil, nil
		}
		if tooMuch := c.clear(d); err == nil {
			err = tooMuch
		}
	}()
	return c.proceed(d)
}

// The bounds of one turn: how often it reads at a stop, and how often it sends. Others wait meanwhile.
const (
	maxReads = 64
	maxSends = 4 // of flushSize octets
)

func (c *conn) proceed(d *desk) error {
	for reads, answered := 0, false; ; reads++ {
		for hungry, sends := false, 0; !hungry; sends++ {
			if sends == maxSends {
				c.more = true
				return nil
			}
			var err error
			if hungry, err = c.answerAll(); err != nil {
				return err
			}
			answered = answered || len(c.out) > 0
			if err := c.send(); err != nil || len(c.out) > 0 {
				return err
			}
		}
		stopping := c.stopping.Load()
		switch {
		case c.quit:
			return io.EOF
		case reads > 0 && !stopping, reads > maxReads:
			return nil // other connections are next
		}
		if more, err := c.read(d); err != nil {
			return err
		} else if !more {
			if stopping && answered && len(c.in) == 0 {
				return io.EOF
			}
			return nil
		}
	}
}

// clear leaves nothing of a turn's buffers with the connection. What it has to keep is copied, and counts.
func (c *conn) clear(d *desk) error {
	if len(c.in) == 0 {
		c.in = nil
	} else if &c.in[0] == &d.input[0] {
		c.in = bytes.Clone(c.in)
	}
	if b := c.batch; b != nil && cap(b.asked) <= 4*batchSize { // more is of one large command
		b.forget()
		d.batch = b
	}
	c.batch = nil
	if cap(c.args) <= 8 {
		clear(c.args[:cap(c.args)])
		d.args = c.args[:0]
	}
	c.args = nil
	switch waits := len(c.out) > 0; {
	case !waits && cap(c.out) <= 2*flushSize:
		c.out, d.out = nil, c.out[:0]
	case !waits:
		c.out = nil
	case cap(d.out) > 0 && &c.out[0] == &d.out[:1][0]:
		c.out = bytes.Clone(c.out)
	}
	switch {
	case len(c.in) == 0 || c.outward():
		c.began = time.Time{}
	case c.began.IsZero():
		c.began = c.now
	}
	if held := cap(c.in) + cap(c.out); held > smallRest {
		return c.charge(held)
	}
	return c.charge(0)
}

// outward reports whether the connection has something to send, and waits for room for it, not for input.
func (c *conn) outward() bool { return len(c.out) > 0 || c.more }

// charge counts the octets that the connection holds while it waits. It fails if all of them together hold too much.
func (c *conn) charge(octets int) error {
	more := int64(octets) - c.charged
	c.charged += more
	if c.held.Add(more) > heldSize && more > 0 {
		return errMemory
	}
	return nil
}

// overdue says whether a connection has to end because of the time.
func (c *conn) overdue(d *desk, now time.Time) error {
	idle := len(c.in) == 0 && !c.outward()
	switch {
	case !c.began.IsZero() && now.Sub(c.began) >= commandTime:
		return errSlow
	case !c.blocked.IsZero() && now.Sub(c.blocked) >= writeTime:
		return errUnread
	case idle && now.Sub(c.seen) >= idleTime:
		return io.EOF
	case !c.stopping.Load():
		return nil
	case c.grace.IsZero():
		c.grace = now.Add(graceTime)
		return nil
	case now.Sub(c.grace) > stopTimeout:
		return io.EOF
	case !idle || now.Before(c.grace):
		return nil
	}
	if err := c.turn(d, now); err != nil || !c.seen.Equal(now) {
		return cmp.Or(err, io.EOF)
	}
	return nil // it came at the last moment
}

// answerAll answers every whole command, until the answers are due to be sent. It is hungry if it needs more
// input.
func (c *conn) answerAll() (hungry bool, err error) {
	defer func() {
		if c.r > 0 {
			c.in = c.in[:copy(c.in, c.in[c.r:])]
			c.r = 0
		}
	}()
	for !c.quit && len(c.out) < flushSize {
		if c.script != nil {
			c.execute()
			continue
		}
		n, err := c.frame.measure(c.in[c.r:])
		if err != nil || n == 0 {
			c.answerLookups()
			return true, err
		}
		command := c.in[c.r : c.r+n]
		c.r, c.frame, c.began = c.r+n, first(), time.Time{}
		if err := c.answer(command); err != nil {
			return true, err
		}
	}
	c.answerLookups()
	return c.quit, nil
}

// answer answers one whole command, or has it wait for others that ask about senders too.
func (c *conn) answer(whole []byte) error {
	if whole[0] == '*' && bytes.IndexByte(whole, '\n') == len(whole)-1 {
		return nil // an array of nothing: Redis says nothing either
	}
	ok, args, _, _, err := redcon.ReadNextCommand(whole, c.args)
	if err != nil || !ok {
		c.answerLookups()
		return errMalformed
	}
	c.args = args
	if len(args) == 0 {
		return nil // an empty line
	}
	if whole[0] != '*' && (bytes.EqualFold(args[0], []byte("post")) || bytes.EqualFold(args[0], []byte("host:"))) {
		return errHTTP
	}
	return c.command(args)
}

// send sends what the peer takes.
func (c *conn) send() error {
	for len(c.out) > 0 {
		n, err := syscall.Write(c.fd, c.out)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			if c.blocked.IsZero() {
				c.blocked = c.now
			}
			return nil
		case err != nil:
			return os.NewSyscallError("write", err)
		default:
			c.out = c.out[:copy(c.out, c.out[n:])]
		}
	}
	c.blocked = time.Time{}
	return nil
}

// read reads what there is. The buffer grows with the octets that have come, never with an announced length.
func (c *conn) read(d *desk) (more bool, err error) {
	switch {
	case len(c.in) == 0:
		c.in = d.input[:0]
	case len(c.in) == cap(c.in):
		c.in = append(make([]byte, 0, max(2*cap(c.in), smallRest)), c.in...)
	}
	for {
		n, err := syscall.Read(c.fd, c.in[len(c.in):cap(c.in)])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return false, nil
		case err != nil:
			return false, os.NewSyscallError("read", err)
		case n == 0:
			return false, io.EOF
		}
		c.in, c.seen, c.heavy = c.in[:len(c.in)+n], c.now, n >= heavySize
		return true, nil
	}
}

// Stop ends the connection after its pending commands. It may be called from
// any goroutine.
func (c *conn) Stop() {
	c.stopping.Store(true)
	c.loop.stop()
}
