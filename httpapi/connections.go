package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// connections is a listener that bounds how many connections are open in total and per
// client. What is beyond the bound of one client is closed at once.
//
// When all places are taken, one that has no whole request at the moment gives its place
// to the newcomer: first one that never had any, of the client with the most. A client
// that opens connections and says half a word keeps nobody out. A share of the places is
// left for clients that have no connection open, so that two of them which keep all
// others busy keep nobody out either. Only where every place is taken by a request does a
// newcomer wait, in the system's queue.
type connections struct {
	net.Listener
	most, reserve, perClient int
	closed                   chan struct{}
	once                     sync.Once
	refused                  func()

	mu      sync.Mutex
	open    map[*connection]struct{}
	clients map[netip.Prefix]int
	left    chan struct{} // somebody has left
}

// reserveShare is which part of the places is left for clients with none: of 256 they are 32.
const reserveShare = 8

// waitForPlace is how often a newcomer that waits looks for a connection whose request
// has ended. That is not told: it would cost every request.
const waitForPlace = 50 * time.Millisecond

func newConnections(l net.Listener, most, perClient int, refused func()) *connections {
	return &connections{Listener: l, most: most, reserve: (most + reserveShare - 1) / reserveShare, perClient: perClient, closed: make(chan struct{}),
		refused: refused, open: map[*connection]struct{}{}, clients: map[netip.Prefix]int{}, left: make(chan struct{}, 1)}
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		made := &connection{Conn: conn, all: c}
		made.since.Store(time.Now().UnixNano())
		made.client, made.counted = clientOf(conn)
		admitted, err := c.admit(made)
		switch {
		case err != nil:
			conn.Close()
			return nil, err
		case admitted:
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

// admit gives a newcomer a place, or reports that there is none for it. It waits if there
// may be one soon. The error says that the listener is closed.
func (c *connections) admit(made *connection) (bool, error) {
	for {
		done, admitted := c.try(made)
		if done {
			return admitted, nil
		}
		select {
		case <-c.left:
		case <-time.After(waitForPlace):
		case <-c.closed:
			return false, net.ErrClosed
		}
	}
}

// try is one attempt of admit; done is false if the newcomer is to wait.
func (c *connections) try(made *connection) (done, admitted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	has, places := 0, c.most
	if made.counted {
		if has = c.clients[made.client]; has >= c.perClient {
			return true, false
		}
		if has > 0 {
			places -= c.reserve
		}
	}
	if len(c.open) >= places {
		switch idle := c.idlest(has); {
		case idle != nil:
			c.forget(idle)
			c.refused()
			idle.Conn.Close()
		case has > 0:
			return true, false
		default:
			return false, false
		}
	}
	c.open[made] = struct{}{}
	if made.counted {
		c.clients[made.client]++
	}
	return true, true
}

// idlest is the connection that gives its place to a client with so many: one without a
// request, and of these first one that never had any, of the client with the most, the
// oldest. It is nil if there is none, or only ones of clients that have fewer.
func (c *connections) idlest(has int) (idlest *connection) {
	most := 0
	for conn := range c.open {
		if conn.busy.Load() {
			continue
		}
		n := c.clients[conn.client]
		if n < has {
			continue
		}
		switch {
		case idlest == nil:
		case conn.served.Load() != idlest.served.Load():
			if conn.served.Load() {
				continue
			}
		case n != most:
			if n < most {
				continue
			}
		case conn.since.Load() >= idlest.since.Load():
			continue
		}
		idlest, most = conn, n
	}
	return idlest
}

// forget takes a connection out of the counts, once.
func (c *connections) forget(conn *connection) {
	if _, ours := c.open[conn]; !ours {
		return
	}
	delete(c.open, conn)
	if conn.counted {
		if c.clients[conn.client]--; c.clients[conn.client] == 0 {
			delete(c.clients, conn.client)
		}
	}
	select {
	case c.left <- struct{}{}:
	default:
	}
}

// connection gives its place back when it is closed.
type connection struct {
	net.Conn
	all     *connections
	client  netip.Prefix
	counted bool

	busy   atomic.Bool  // a request is being answered
	served atomic.Bool  // there has been one
	since  atomic.Int64 // Unix nanoseconds: it was opened, or its last request came
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// remember puts the connection into the context of its requests.
func remember(ctx context.Context, conn net.Conn) context.Context {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS, or the fast path as the server sees it
		conn = over.NetConn()
	}
	if c, ok := conn.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	return ctx
}

// marked tells a connection of its requests.
func marked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			c.since.Store(time.Now().UnixNano())
			c.busy.Store(true)
			defer func() {
				c.served.Store(true)
				c.busy.Store(false)
			}()
		}
		next.ServeHTTP(w, r)
	})
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
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.forget(c)
	return err
}
