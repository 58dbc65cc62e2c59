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
)

// conn is a mail server's connection as the library sees it: complete,
// checked packets in, whole packets out. A peer that begins a packet must also end it
// in time, and read the answers.
type conn struct {
	net.Conn
	guard *guard

	in    packets
	taken chan struct{} // closed when the library first reads, or the connection ends
	take  sync.Once
	spoke atomic.Bool // the last packet belonged to an SMTP session, or to the negotiation before it
	out   []byte      // the head of a reply whose data is still to come

	idle idleTimer

	closed sync.Once
	err    error // of Close
}

// Read hands out octets of packets that have arrived whole.
func (c *conn) Read(p []byte) (int, error) {
	c.take.Do(func() { close(c.taken) })
	for c.in.whole == 0 {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	return c.in.hand(p), nil
}

// fill reads until there is a whole packet.
func (c *conn) fill() error {
	defer c.idle.end()
	begun := false // the wait is for the rest of a packet
	for first := true; ; first = false {
		done, err := c.in.admit()
		if err != nil {
			c.guard.metrics.badPackets.WithLabelValues(whyForm).Inc()
			return c.fault(err)
		}
		if done {
			c.spoke.Store(c.in.command() != cmdQuitNext)
			return nil
		}
		switch under := c.in.under(); {
		case under && !begun:
			begun = true
			c.wait(c.guard.settings.PacketTimeout)
		case first && !c.in.negotiated:
			c.wait(c.guard.settings.FirstTimeout)
		case first:
			c.wait(c.guard.settings.IdleTimeout)
		}
		n, err := c.Conn.Read(c.in.room())
		c.in.tail += n
		if n == 0 && err != nil && !c.early(err) {
			return c.lost(err)
		}
	}
}

// lost ends a connection whose peer is gone, or whose idle timer has expired.
func (c *conn) lost(err error) error {
	switch under := c.in.under(); {
	case under && errors.Is(err, os.ErrDeadlineExceeded):
		c.guard.metrics.badPackets.WithLabelValues(whySlow).Inc()
	case under && err == io.EOF:
		c.guard.metrics.badPackets.WithLabelValues(whyTorn).Inc()
		err = io.ErrUnexpectedEOF
	}
	if err == io.EOF {
		return err // the normal end
	}
	return c.fault(err)
}

// fault names the peer of an error, because the library logs only its text.
func (c *conn) fault(err error) error {
	return fmt.Errorf("mail server at %s: %w", peerText(c.Conn), err)
}

// SetReadDeadline does nothing. The library would give the negotiation a second,
// which a mail server under load does not always keep, and no limit to everything
// after it.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing: the library would set one for each answer, and take
// it back.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Write sends whole packets. The library writes the head of a reply and its data
// one after the other, which would be two system calls and two segments.
func (c *conn) Write(p []byte) (int, error) {
	if len(c.out) == 0 && wholePacket(p) {
		return c.send(p)
	}
	c.out = append(c.out, p...)
	if !wholePacket(c.out) {
		return len(p), nil
	}
	_, err := c.send(c.out)
	c.out = nil // an idle connection keeps nothing; replies with data are few
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// send writes all of p.
func (c *conn) send(p []byte) (sent int, err error) {
	c.wait(writeTimeout)
	defer c.idle.end()
	for {
		n, err := c.Conn.Write(p[sent:])
		if sent += n; err == nil || !c.early(err) {
			return sent, err
		}
	}
}

func wholePacket(p []byte) bool {
	return len(p) >= lengthOctets && len(p)-lengthOctets >= int(binary.BigEndian.Uint32(p))
}

// silent reports that no SMTP session is in progress: none yet, or none since
// the last has ended.
func (c *conn) silent() bool { return !c.spoke.Load() }

// Close may be called more than once, and by several goroutines.
func (c *conn) Close() error {
	c.closed.Do(func() {
		c.take.Do(func() { close(c.taken) })
		c.err = c.Conn.Close()
		c.guard.leave(c)
	})
	return c.err
}
