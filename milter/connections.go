package milter

import (
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"blockd/internal/listener"
)

// connections stands between the network and the library. The library trusts its peers: it
// allocates memory for any announced length, waits without a limit, and ends the process at
// the first packet that is too short. connections admits only the peers and the number of
// connections that the settings allow, and each conn admits only whole, checked packets. It
// keeps its own set of open connections, because the library can lose one while it stops.
type connections struct {
	settings Settings
	metrics  *metrics
	log      *listener.CalmLog
	macros   func() []byte // Server.macros
	begun    time.Time
	spare    sync.Pool // of packets
	apart    *apart    // connections of the peers that are not listener.Private

	mu       sync.Mutex
	open     map[*conn]struct{}
	stopping chan struct{} // closed when Accept stops waiting for connections
}

func newConnections(s Settings, m *metrics, log *listener.CalmLog, macros func() []byte) *connections {
	return &connections{settings: s, metrics: m, log: log, macros: macros, begun: time.Now(), open: map[*conn]struct{}{}, stopping: make(chan struct{}), apart: &apart{conns: make(chan net.Conn, s.MaxConnections)}}
}

// apart is a listener for connections that another one has accepted. It has room for all that may be open.
type apart struct {
	conns chan net.Conn
	end   sync.Once
}

// Accept returns the next connection, until all were taken and the listener is closed.
func (a *apart) Accept() (net.Conn, error) {
	if c, ok := <-a.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Close ends the listener, once: the library closes what it has served, too. Whoever hands it connections has ended.
func (a *apart) Close() error {
	a.end.Do(func() { close(a.conns) })
	return nil
}

// Addr says what it is, for the library, which asks for a name.
func (a *apart) Addr() net.Addr { return &net.UnixAddr{Name: "apart", Net: "unix"} }

// admitting is a listener whose Accept returns only admitted connections of private peers. It hands on those of others.
type admitting struct {
	net.Listener
	*connections
}

// Accept returns the next admitted connection.
func (l admitting) Accept() (net.Conn, error) {
	for {
		nc, err := listener.Accept(l.Listener, l.stopping, func(err error, _ time.Duration) {
			l.metrics.acceptErrors.Inc()
			l.log.Warn("milter accept failed", slog.Any("error", err))
		})
		if err != nil {
			return nil, err
		}
		switch c := l.enter(nc); {
		case c == nil:
			nc.Close()
		case listener.Private(nc):
			return c, nil
		default:
			l.apart.conns <- c
		}
	}
}

// enter admits a peer, or returns nil. It refuses without a reply, because the protocol has
// none.
func (g *connections) enter(nc net.Conn) *conn {
	c, why := g.add(nc)
	if why != "" {
		g.metrics.refused.WithLabelValues(why).Inc()
		if why == whyNetwork && g.settings.Strangers != nil {
			g.settings.Strangers.TurnedAway(nc.RemoteAddr())
		} else {
			g.log.Warn("milter connection refused", slog.String("from", peerText(nc)), slog.String("why", why))
		}
	}
	return c
}

// add adds a connection to the open ones, or says why it may not. It also adds connections
// that arrive while the filter stops: if one were closed, a message would pass unchecked.
func (g *connections) add(nc net.Conn) (c *conn, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !listener.Admits(g.settings.AllowFrom, nc.RemoteAddr()):
		return nil, whyNetwork
	case len(g.open) >= g.settings.MaxConnections:
		return nil, whyTotal
	}
	c = &conn{Conn: nc, connections: g, taken: make(chan struct{}), in: packets{spare: &g.spare}}
	g.open[c] = struct{}{}
	g.metrics.connections.Inc()
	g.metrics.active.Inc()
	return c, ""
}

// peerText names a peer; a peer on a Unix socket has no name.
func peerText(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil && a.Network() != "unix" {
		return a.String()
	}
	return c.LocalAddr().String()
}

func (g *connections) leave(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.open[c]; ok {
		delete(g.open, c)
		g.metrics.active.Dec()
	}
}

// waitTaken waits until the library has begun to read every open connection, or the connection
// has ended. It waits for at most the given time.
func (g *connections) waitTaken(most time.Duration) {
	g.mu.Lock()
	open := slices.Collect(maps.Keys(g.open))
	g.mu.Unlock()
	timeout := time.After(most)
	for _, c := range open {
		select {
		case <-c.taken:
		case <-timeout:
			return
		}
	}
}

// stop makes Accept return instead of waiting. It is called once. The caller closes the
// listeners.
func (g *connections) stop() { close(g.stopping) }

// cut closes the connections that which selects, and returns their number.
func (g *connections) cut(which func(*conn) bool) int {
	var gone []*conn
	g.mu.Lock()
	for c := range g.open {
		if which(c) {
			gone = append(gone, c)
		}
	}
	g.mu.Unlock()
	for _, c := range gone {
		c.Close()
	}
	return len(gone)
}
