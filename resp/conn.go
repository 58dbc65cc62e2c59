package resp

import (
	"bytes"
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

	"blockd/listener"
)

// The time limits of a connection.
const (
	idleTime    = time.Hour        // pools of clients keep connections; a dead peer is found by keepalive probes
	commandTime = 10 * time.Second // from the first octet of a command to its last
	writeTime   = 10 * time.Second // until the peer has taken the answers
	// graceTime is how long an idle connection stays open at a stop, for a
	// question that is already on its way.
	graceTime = 100 * time.Millisecond
	// armTime is how old a deadline may get before it is set anew: setting one for each
	// command costs as much as deciding it.
	armTime = 5 * time.Second
)

// The sizes of a connection's buffers.
const (
	inputSize = 16 << 10 // holds 250 commands for one sender
	flushSize = 64 << 10 // answers to pipelined commands are sent from here on
	smallRest = 1 << 10  // of an unfinished command that is copied, so that its buffer can be given back
	// heldSize bounds what all connections together hold of unfinished commands and of
	// answers that nobody reads: 64 clients may send the longest command at one time.
	heldSize = 64 << 20
)

// conn reads commands and writes answers. While it waits for a command it has no buffers: 10,000
// idle clients cost their goroutines.
type conn struct {
	*Server
	client
	writer
	conn net.Conn
	raw  syscall.RawConn

	buffer   *[inputSize]byte // the memory of in, if it is of the pool
	in       []byte           // the octets read; in[r:] is not answered yet
	r        int
	rest     []byte // a small part of a command, between two reads
	frame    frame
	args     [][]byte
	batch    *batch
	received func(fd uintptr) bool // receive
	sent     func(fd uintptr) bool // send
	failed   error                 // of receive and send
	unsent   []byte
	charged  int64 // of Server.held

	now      time.Time // of the last read
	armed    time.Time // when the read deadline was set; zero: it is no idle deadline
	writable time.Time // when the write deadline was set
	began    time.Time // when the first octet of an unfinished command came; zero without one
	stopping atomic.Bool
	quit     bool
	unheard  error // of flush: answers are lost, perhaps from the middle of one
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{Server: s, conn: nc, frame: first()}
	c.client = client{id: s.clients.Add(1), trusted: s.users.none() || listener.Admits(listener.Loopback(), nc.RemoteAddr())}
	c.received, c.sent = c.receive, c.send
	return c
}

// Run answers until the peer, a fault or Stop ends the connection.
func (c *conn) Run() {
	defer c.conn.Close()
	defer c.release()
	err := c.run()
	f := fault("")
	if !errors.As(err, &f) {
		return
	}
	c.metrics.faults.WithLabelValues(string(f)).Inc()
	c.faults.Warn("resp connection ended", slog.String("peer", c.conn.RemoteAddr().String()), slog.String("why", string(f)))
	if c.unheard == nil { // else the words would be read as the rest of an answer
		c.farewell(f)
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

// farewell sends the answers that are due, and the last one. Then it reads the peer's input for a
// moment: closing a socket with unread input resets the connection, and the answers
// would be lost.
func (c *conn) farewell(f fault) {
	words := farewells[f]
	if words == "" {
		return
	}
	c.err(words)
	c.conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.conn.Write(c.out); err != nil {
		return
	}
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	var rest [4 << 10]byte
	for range 64 {
		if _, err := c.conn.Read(rest[:]); err != nil {
			return
		}
	}
}

// run returns nil at the end of the input or of the Server, and otherwise a fault or
// the error of the connection.
func (c *conn) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("resp panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err = errPanic
		}
	}()
	socket, ok := c.conn.(syscall.Conn)
	if !ok {
		return errors.New("resp: the connection is no socket")
	}
	if c.raw, err = socket.SyscallConn(); err != nil {
		return err
	}
	c.now = time.Now()
	for {
		err := c.answerAll()
		c.releaseBatch()
		if err != nil {
			return err
		}
		answered := len(c.out) > 0
		if err := c.flush(); err != nil {
			return err
		}
		if c.quit || answered && len(c.in) == 0 && c.stopping.Load() && !c.more() {
			return nil
		}
		if err := c.read(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// answerAll answers every whole command.
func (c *conn) answerAll() error {
	for c.r < len(c.in) && !c.quit {
		n, err := c.frame.measure(c.in[c.r:])
		if err != nil {
			c.answerLookups()
			return err
		}
		if n == 0 {
			break
		}
		command := c.in[c.r : c.r+n]
		c.r, c.frame, c.began = c.r+n, first(), time.Time{}
		if err := c.answer(command); err != nil {
			return err
		}
		if len(c.out) >= flushSize {
			c.answerLookups()
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	c.answerLookups()
	c.in = c.in[:copy(c.in, c.in[c.r:])]
	c.r = 0
	return nil
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

// flush sends the answers.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	if now := time.Now(); now.Sub(c.writable) > armTime {
		c.conn.SetWriteDeadline(now.Add(armTime + writeTime))
		c.writable = now
	}
	c.unsent, c.failed = c.out, nil
	err := c.raw.Write(c.sent)
	c.unsent, c.out = nil, c.out[:0]
	c.free()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errUnread
	}
	if err == nil {
		err = c.failed
	}
	c.unheard = err
	return err
}

// send writes what the socket takes. A client that does not read holds its buffers, and no batch: they
// count.
func (c *conn) send(fd uintptr) bool {
	for len(c.unsent) > 0 {
		n, err := syscall.Write(int(fd), c.unsent)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			c.releaseBatch()
			return c.charged == 0 && !c.charge(cap(c.out)+cap(c.in))
		case err != nil:
			c.failed = os.NewSyscallError("write", err)
			return true
		default:
			c.unsent = c.unsent[n:]
		}
	}
	return true
}

// charge counts octets that are held while the peer is waited for. It fails if there are
// too many.
func (c *conn) charge(octets int) bool {
	c.charged = int64(octets)
	if c.held.Add(c.charged) > heldSize {
		c.failed = errMemory
		return false
	}
	return true
}

func (c *conn) free() {
	if c.charged != 0 {
		c.held.Add(-c.charged)
		c.charged = 0
	}
}

// release gives the buffers back.
func (c *conn) release() {
	c.releaseBatch()
	c.releaseInput()
	c.dequeue()
	c.free()
}

func (c *conn) releaseInput() {
	if c.buffer != nil {
		c.inputs.Put(c.buffer)
	}
	c.buffer, c.in = nil, nil
}

// read waits for more of the input, and reads what there is. The buffer grows with the octets
// that have come, never with an announced length.
func (c *conn) read() error {
	c.forget()
	switch {
	case len(c.in) <= smallRest:
		c.rest = append(c.rest[:0], c.in...)
		if len(c.rest) == 0 {
			c.rest = nil
		}
		c.releaseInput()
	case len(c.in) == cap(c.in):
		c.rest = nil
		in := append(make([]byte, 0, 2*cap(c.in)), c.in...)
		c.releaseInput()
		c.in = in
	}
	if len(c.in) > 0 && !c.charge(cap(c.in)) {
		return c.failed
	}
	defer c.free()
	for {
		c.arm()
		c.failed = nil
		err := c.raw.Read(c.received)
		c.now = time.Now()
		if err == nil {
			return c.failed
		}
		switch {
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case c.began.IsZero():
			if c.more() {
				continue // it came while this goroutine had no turn
			}
			return io.EOF // idle for too long, or stopped
		case c.now.Sub(c.began) >= commandTime:
			return errSlow
		}
		// Stopped within a command: read still waits for the rest of it.
	}
}

// forget lets go what a waiting connection need not have. What is left of the others has 1.2 KB.
func (c *conn) forget() {
	if cap(c.out) > smallRest {
		c.out = nil
	}
	if c.args = c.args[:cap(c.args)]; len(c.args) > 8 {
		c.args = nil
	}
	clear(c.args) // they point into a buffer that is given back
}

// receive reads what has come. A buffer is taken only for that.
func (c *conn) receive(fd uintptr) bool {
	if c.in == nil {
		c.buffer = c.inputs.Get().(*[inputSize]byte)
		c.in = c.buffer[:copy(c.buffer[:], c.rest)]
	}
	for {
		n, err := syscall.Read(int(fd), c.in[len(c.in):cap(c.in)])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			if c.charged == 0 {
				c.releaseInput()
			}
			return false
		case err != nil:
			c.failed = os.NewSyscallError("read", err)
		case n == 0:
			c.failed = io.EOF
		default:
			c.in = c.in[:len(c.in)+n]
		}
		return true
	}
}

// more reports whether there is something to read. At a stop a long pipeline may lie in the socket
// yet, while the buffer ends with a command.
func (c *conn) more() (yes bool) {
	c.raw.Control(func(fd uintptr) {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		yes = err == nil && n > 0
	})
	return yes
}

// arm sets the deadline for the next read.
func (c *conn) arm() {
	switch {
	case len(c.in)+len(c.rest) > 0:
		if c.began.IsZero() {
			c.began = c.now
		}
		c.conn.SetReadDeadline(c.began.Add(commandTime))
		c.armed = time.Time{}
		return
	case c.armed.IsZero() || c.now.Sub(c.armed) > armTime:
		c.conn.SetReadDeadline(c.now.Add(idleTime))
		c.armed = c.now
	}
	if c.stopping.Load() { // before Stop has set its deadline, or after: it is set
		c.conn.SetReadDeadline(c.now.Add(graceTime))
	}
}

// Stop ends the connection after its pending commands. It may be called from
// any goroutine.
func (c *conn) Stop() {
	c.stopping.Store(true)
	c.conn.SetReadDeadline(time.Now().Add(graceTime))
}
