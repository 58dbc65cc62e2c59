package postfix

import (
	"blockd/internal/listener"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// The time limits of a connection.
const (
	// idleTime is longer than the 300 s after which Postfix closes by itself
	// (smtpd_policy_service_max_idle), so that Postfix normally closes first.
	idleTime    = 400 * time.Second
	requestTime = 10 * time.Second // from the first octet of a request to its last
	writeTime   = 10 * time.Second // until the peer has taken the answers
	// graceTime is how long an idle connection stays open at a stop, for a
	// question that is already on its way.
	graceTime = 100 * time.Millisecond
	// armTime is how old a deadline may get before it is set anew. Setting both for
	// each request takes 0.5 µs; reading and deciding it takes 1.2.
	armTime = 5 * time.Second
)

// The sizes of a connection's buffers.
const (
	readSize  = 2 << 10 // a request of Postfix has 700 to 900 octets
	flushSize = 8 << 10 // answers to pipelined requests are sent from here on
)

// dialect is one protocol on one connection. Its methods are called one at a time.
type dialect interface {
	// measure returns the length of the first request in buf, framing included, or
	// 0 as long as it is not whole. The first seen octets were there at the last
	// call for this request. An error is a fault, and ends the connection.
	measure(buf []byte, seen int) (int, error)

	// answer appends the answer to a whole request to out. A fault ends the
	// connection with only the answer of apologize.
	answer(out, request []byte) ([]byte, error)

	// apologize appends the answer that is sent if there can be no right one.
	apologize(out []byte) []byte
}

// fault is why a connection ends before its peer ends it; the text is the label of
// the metric.
type fault string

func (f fault) Error() string { return string(f) }

// The faults.
const (
	errTooLong   fault = "too-long"  // a limit of the protocol
	errMalformed fault = "malformed" // no request
	errSlow      fault = "slow"      // not whole within requestTime
	errUnread    fault = "unread"    // the peer takes no answers
	errPanic     fault = "panic"     // a defect of blockd
)

// conn reads requests and writes answers.
type conn struct {
	*service
	dialect dialect
	conn    net.Conn

	in       []byte // the octets read; in[r:] is not answered yet
	r        int
	seen     int // of in[r:]: measured, and no whole request
	out      []byte
	now      time.Time // of the last read
	armed    time.Time // when the read deadline was set; zero: it is no idle deadline
	writable time.Time // when the write deadline was set
	began    time.Time // when the first octet of an unfinished request came; zero without one
	stopping atomic.Bool
}

func newConn(s *service, d dialect, nc net.Conn) *conn {
	return &conn{service: s, dialect: d, conn: nc, in: make([]byte, 0, readSize)}
}

// Run answers until the peer, a fault or Stop ends the connection.
func (c *conn) Run() {
	defer c.conn.Close()
	err := c.run()
	if err == errStopped && c.settings.Leave != nil && c.settings.Leave(c.door.Name, c.conn) {
		return
	}
	f := fault("")
	if !errors.As(err, &f) {
		return
	}
	c.metrics.faults[f].Inc()
	c.faults.Warn(c.door.Name+" connection ended", slog.String("peer", c.conn.RemoteAddr().String()), slog.String("why", string(f)))
	if f != errUnread {
		c.farewell()
	}
}

// farewell sends the last answer. Then it reads the peer's input for a
// moment: closing a socket with unread input resets the connection, and the answer
// would be lost.
func (c *conn) farewell() {
	c.conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.conn.Write(c.dialect.apologize(c.out)); err != nil {
		return
	}
	listener.CloseWrite(c.conn)
	rest := make([]byte, 4<<10)
	for range 64 {
		if _, err := c.conn.Read(rest); err != nil {
			return
		}
	}
}

// errStopped is the end of a connection by Stop, with every request answered.
var errStopped = errors.New("stopped")

// run returns nil at the end of the input, errStopped at that of the Server, and otherwise a fault or
// the error of the connection.
func (c *conn) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error(c.door.Name+" panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err = errPanic
		}
	}()
	c.now = time.Now()
	for {
		if err := c.answerAll(); err != nil {
			return err
		}
		answered := len(c.out) > 0
		if err := c.flush(); err != nil {
			return err
		}
		if answered && len(c.in) == 0 && c.stopping.Load() {
			return errStopped
		}
		if err := c.read(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// answerAll answers every whole request.
func (c *conn) answerAll() error {
	for c.r < len(c.in) {
		n, err := c.dialect.measure(c.in[c.r:], c.seen)
		if err != nil {
			return err
		}
		if n == 0 {
			c.seen = len(c.in) - c.r
			break
		}
		if c.out, err = c.dialect.answer(c.out, c.in[c.r:c.r+n]); err != nil {
			return err
		}
		c.r, c.seen, c.began = c.r+n, 0, time.Time{}
		if len(c.out) >= flushSize {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	c.in = c.in[:copy(c.in, c.in[c.r:])]
	c.r = 0
	if len(c.in) == 0 && cap(c.in) > readSize {
		c.in = make([]byte, 0, readSize)
	}
	return nil
}

// flush sends the answers.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	c.now = time.Now() // an answer may have waited for DNS
	if c.now.Sub(c.writable) > armTime {
		c.conn.SetWriteDeadline(c.now.Add(armTime + writeTime))
		c.writable = c.now
	}
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errUnread
	}
	return err
}

// read waits for more of the input. The buffer grows with the octets that have come,
// never with an announced length.
func (c *conn) read() error {
	if len(c.in) == cap(c.in) {
		c.in = append(make([]byte, 0, 2*cap(c.in)), c.in...)
	}
	for {
		c.arm()
		n, err := c.conn.Read(c.in[len(c.in):cap(c.in)])
		c.now = time.Now()
		if n > 0 {
			c.in = c.in[:len(c.in)+n]
			return nil
		}
		switch {
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case c.began.IsZero():
			if c.stopping.Load() {
				return errStopped
			}
			return io.EOF // idle for too long
		case c.now.Sub(c.began) >= requestTime:
			return errSlow
		}
		// Stopped within a request: read still waits for the rest of it.
	}
}

// arm sets the deadline for the next read.
func (c *conn) arm() {
	switch {
	case len(c.in) > 0:
		if c.began.IsZero() {
			c.began = c.now
		}
		c.conn.SetReadDeadline(c.began.Add(requestTime))
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

// Stop ends the connection after its pending requests. It may be called from
// any goroutine.
func (c *conn) Stop() {
	c.stopping.Store(true)
	c.conn.SetReadDeadline(time.Now().Add(graceTime))
}
