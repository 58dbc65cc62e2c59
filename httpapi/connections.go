package httpapi

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// connections is a listener that has so many connections open at a time, and of them
// so many of one client. Beyond the first bound others wait in the system's queue;
// beyond the second they are closed at once: one client that opens connections and
// says nothing would keep everybody else waiting.
type connections struct {
	net.Listener
	free      chan struct{} // a place each
	perClient int
	closed    chan struct{}
	once      sync.Once
	refused   func()
	lanes     *lanes // of its connections; nil: they have none

	mu   sync.Mutex
	open map[netip.Prefix]int
}

func newConnections(l net.Listener, most, perClient int, refused func()) *connections {
	return &connections{Listener: l, free: make(chan struct{}, most), perClient: perClient, closed: make(chan struct{}),
		refused: refused, open: map[netip.Prefix]int{}}
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	select {
	case c.free <- struct{}{}:
	case <-c.closed:
		return nil, net.ErrClosed
	}
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			<-c.free
			return nil, err
		}
		client, counted := clientOf(conn)
		if !counted || c.take(client) {
			made := &connection{Conn: conn, leave: func() {
				if counted {
					c.leave(client)
				}
				<-c.free
			}}
			if c.lanes != nil {
				made.lane = c.lanes.of(conn)
			}
			return made, nil
		}
		c.refused() // counted before the close: who sees the end finds it counted
		conn.Close()
	}
}

// Close implements net.Listener. It wakes an Accept that waits for a place. Only the
// first one does something.
func (c *connections) Close() (err error) {
	c.once.Do(func() {
		close(c.closed)
		err = c.Listener.Close()
	})
	return err
}

// clientOf is who counts as one client; not of a Unix socket.
func clientOf(conn net.Conn) (client netip.Prefix, counted bool) {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return client, false
	}
	return clientKey(tcp.AddrPort().Addr()).client, true
}

func (c *connections) take(client netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[client] >= c.perClient {
		return false
	}
	c.open[client]++
	return true
}

func (c *connections) leave(client netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[client]--; c.open[client] == 0 {
		delete(c.open, client)
	}
}

// connection gives its place back when it is closed.
type connection struct {
	net.Conn
	once  sync.Once
	leave func()
	lane  *lane // that has not begun; nil: none
}

// Read implements net.Conn. The first one lasts as long as the lane does.
func (c *connection) Read(p []byte) (int, error) {
	if first := c.lane; first != nil {
		c.lane = nil
		return first.read(p)
	}
	return c.Conn.Read(p)
}

// SetReadDeadline implements net.Conn. Without one, which is what net/http wants behind
// every header, the body has requestTimeout: also one that no handler sees, of a request
// that net/http refuses itself and then waits for the end of. Streams extend it as they go.
func (c *connection) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		t = time.Now().Add(requestTimeout)
	}
	return c.Conn.SetReadDeadline(t)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.leave)
	return err
}
