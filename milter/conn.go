package milter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/d--j/go-milter"
)

// conn is a mail server's connection as the library sees it. Read returns only whole, checked
// packets, and Write sends only whole packets. A peer must finish each packet that it begins,
// and must read the answers, within the timeouts.
type conn struct {
	net.Conn
	connections *connections

	in    packets
	taken chan struct{} // closed at the library's first Read, or by Close
	take  sync.Once
	spoke atomic.Bool // the last packet belongs to an SMTP session, or to the negotiation
	out   []byte      // the beginning of a reply that Write has not got whole

	agreed bool // the negotiation is answered

	idle idleTimer

	closed sync.Once
	err    error // what Close returns
}

// Read returns octets of packets that have arrived whole.
func (c *conn) Read(p []byte) (int, error) {
	c.take.Do(func() { close(c.taken) })
	for c.in.whole == 0 {
		if err := c.fill(); err != nil {
			c.in.release() // only this goroutine uses it, and reads no more
			return 0, err
		}
	}
	return c.in.next(p), nil
}

// fill reads until a whole packet is buffered.
func (c *conn) fill() error {
	defer c.idle.end()
	rest := false // we wait for the rest of a packet
	for first := true; ; first = false {
		done, err := c.in.examine()
		if err != nil {
			c.connections.metrics.badPackets.WithLabelValues(whyForm).Inc()
			return c.fault(err)
		}
		if done {
			c.spoke.Store(c.in.command() != cmdQuitNext)
			return nil
		}
		switch begun := c.in.begun(); {
		case begun && !rest:
			rest = true
			c.wait(c.connections.settings.PacketTimeout)
		case first && !c.in.negotiated:
			c.wait(c.connections.settings.FirstTimeout)
		case first:
			c.wait(c.connections.settings.IdleTimeout)
		}
		n, err := c.Conn.Read(c.in.room())
		c.in.tail += n
		if n == 0 && err != nil && !c.stale(err) {
			return c.lost(err)
		}
	}
}

// lost returns the error for a connection whose peer is gone or too slow. It counts a packet
// that was broken off.
func (c *conn) lost(err error) error {
	switch begun := c.in.begun(); {
	case begun && errors.Is(err, os.ErrDeadlineExceeded):
		c.connections.metrics.badPackets.WithLabelValues(whySlow).Inc()
	case begun && err == io.EOF:
		c.connections.metrics.badPackets.WithLabelValues(whyTorn).Inc()
		err = io.ErrUnexpectedEOF
	}
	if err == io.EOF {
		return err // the peer has closed the connection between two packets
	}
	return c.fault(err)
}

// fault adds the peer to the error, because the library logs only the error's text.
func (c *conn) fault(err error) error {
	return fmt.Errorf("mail server at %s: %w", peerText(c.Conn), err)
}

// SetReadDeadline does nothing; idleTimer limits every wait instead. The library allows one
// second for the negotiation, which a mail server under load can exceed, and sets no limit
// afterwards.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing; idleTimer limits every wait instead. The library would set
// and clear a deadline for each answer.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Write sends whole packets. The library writes the head of a reply and its data one after the
// other. Sent at once, they would take two system calls and two TCP segments.
func (c *conn) Write(p []byte) (int, error) {
	if len(c.out) == 0 && wholePacket(p) {
		return c.send(p)
	}
	c.out = append(c.out, p...)
	if !wholePacket(c.out) {
		return len(p), nil
	}
	if !c.agreed {
		c.agreed = true
		c.out = c.requestMacros(c.out)
	}
	_, err := c.send(c.out)
	c.out = nil // an idle connection keeps no buffer; few replies have data
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// requestMacros adds the names of macros to the answer to the negotiation, if the mail server
// has offered to take them. The first reply of a connection is that answer.
func (c *conn) requestMacros(answer []byte) []byte {
	const actions = lengthOctets + 1 + 4 // behind the version
	if len(answer) < actions+4 || answer[lengthOctets] != cmdNegotiate ||
		milter.OptAction(binary.BigEndian.Uint32(answer[actions:]))&milter.OptSetMacros == 0 {
		return answer
	}
	answer = append(answer, c.connections.macros()...)
	binary.BigEndian.PutUint32(answer, uint32(len(answer)-lengthOctets))
	return answer
}

// send writes all of p.
func (c *conn) send(p []byte) (sent int, err error) {
	c.wait(writeTimeout)
	defer c.idle.end()
	for {
		n, err := c.Conn.Write(p[sent:])
		if sent += n; err == nil || !c.stale(err) {
			return sent, err
		}
	}
}

func wholePacket(p []byte) bool {
	return len(p) >= lengthOctets && len(p)-lengthOctets >= int(binary.BigEndian.Uint32(p))
}

// silent reports whether no SMTP session is in progress: none has begun, or the last one has
// ended.
func (c *conn) silent() bool { return !c.spoke.Load() }

// Close may be called more than once, and from several goroutines. Each call returns the same
// error.
func (c *conn) Close() error {
	c.closed.Do(func() {
		c.take.Do(func() { close(c.taken) })
		c.err = c.Conn.Close()
		c.connections.leave(c)
	})
	return c.err
}
