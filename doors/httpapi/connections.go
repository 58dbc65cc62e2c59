package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"blockd/internal/listener"
)

// connections is a listener that limits open connections in total and per
// client. A connection beyond the limit of one client is closed at once.
//
// When all places are taken, a connection without a whole request gives its place
// to the newcomer: first one that never had any request, of the client with the most. So a
// client that opens connections and sends half a request keeps no client out. A share of the
// places is left for clients that have no connection open. So two clients that keep all
// other places busy keep no client out either. A newcomer waits, in the system's queue, only
// if every place has a request.
type connections struct {
	net.Listener
	patient                  bool // nothing ends a question but its end
	most, reserve, perClient int
	closed                   chan struct{}
	once                     sync.Once
	refused                  func()

	mu      sync.Mutex
	open    map[*connection]struct{}
	clients map[netip.Prefix]int
	left    chan struct{} // a connection has left
}

// reserveShare is the part of the places that is left for clients with none: 32 of 256.
const reserveShare = 8

// waitForPlace is how often a waiting newcomer looks for a connection whose request
// has ended. Requests do not report their end, because that would cost every request.
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
		c.refused() // counted before the close, so that a client that sees the end finds it counted
		conn.Close()
	}
}

// Close implements net.Listener. It wakes an Accept that waits for a place. Only the
// first call has an effect.
func (c *connections) Close() (err error) {
	c.once.Do(func() {
		close(c.closed)
		err = c.Listener.Close()
	})
	return err
}

// clientOf is the network that counts as one client; not for a Unix socket.
func clientOf(conn net.Conn) (client netip.Prefix, counted bool) {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return client, false
	}
	return listener.Network(tcp.AddrPort().Addr()), true
}

// admit gives a newcomer a place, or reports that there is none for it. It waits if a
// place may become free soon. An error means that the listener is closed.
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

// idlest is the connection that gives its place to a client with this many: one without a
// request. First comes one that never had any request, of the client with the most, the
// oldest. It is nil if there is none, or if only clients with fewer have one.
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

// CloseWrite is listener.CloseWrite.
func (c *connection) CloseWrite() error { return listener.CloseWrite(c.Conn) }

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

// SetReadDeadline implements net.Conn. net/http clears the deadline after every header; then
// the body has requestTimeout. That also covers a body that no handler sees, because
// net/http refuses the request itself and waits for its end. Streams extend the deadline as they go.
func (c *connection) SetReadDeadline(t time.Time) error {
	if t.IsZero() && !c.all.patient {
		t = time.Now().Add(requestTimeout)
	}
	return c.Conn.SetReadDeadline(t)
}

// Close implements net.Conn. The place is given back first, so that a client that sees the end
// and comes again at once finds it.
func (c *connection) Close() error {
	c.all.mu.Lock()
	c.all.forget(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}
