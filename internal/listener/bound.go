package listener

import (
	"net"
	"sync"
	"time"
)

// Bound is l with so many open connections at most: the oldest gives way to the newest, so that connections which ask
// nothing keep nobody out. Its Accept is that of this package: it ends with done, and tells troubled of faults that pass.
func Bound(l net.Listener, most int, done <-chan struct{}, troubled func(err error, retry time.Duration)) net.Listener {
	return &bounded{Listener: l, most: most, done: done, troubled: troubled}
}

type bounded struct {
	net.Listener
	most     int
	done     <-chan struct{}
	troubled func(err error, retry time.Duration)

	mu   sync.Mutex
	open []*connection // the oldest first
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	conn, err := Accept(b.Listener, b.done, b.troubled)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, of: b}
	b.mu.Lock()
	var oldest *connection
	if len(b.open) == b.most {
		oldest, b.open = b.open[0], b.open[1:]
	}
	b.open = append(b.open, c)
	b.mu.Unlock()
	if oldest != nil {
		oldest.Conn.Close()
	}
	return c, nil
}

// connection leaves the open ones when it is closed.
type connection struct {
	net.Conn
	of *bounded
}

// CloseWrite is listener.CloseWrite.
func (c *connection) CloseWrite() error { return CloseWrite(c.Conn) }

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	for i, o := range c.of.open {
		if o == c {
			c.of.open = append(c.of.open[:i], c.of.open[i+1:]...)
			break
		}
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}
