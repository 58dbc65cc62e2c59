package milter

import (
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"blockd/listener"
)

// guard stands between the network and the library, which trusts its peers. The library
// takes memory for any announced length, waits for ever, and ends the
// process at the first packet that is too short. The guard lets in the peers that the
// settings name, as many as they allow, and the packets that conn lets through. It keeps
// its own set of connections, because the library can lose one while it stops.
type guard struct {
	settings Settings
	metrics  *metrics
	log      *listener.CalmLog
	begun    time.Time

	mu       sync.Mutex
	open     map[*conn]struct{}
	stopping chan struct{} // closed when Accept waits for no more connections
}

func newGuard(s Settings, m *metrics, log *listener.CalmLog) *guard {
	return &guard{settings: s, metrics: m, log: log, begun: time.Now(), open: map[*conn]struct{}{}, stopping: make(chan struct{})}
}

// guarded is a listener behind the guard.
type guarded struct {
	net.Listener
	*guard
}

// Accept returns the next admitted connection.
func (l guarded) Accept() (net.Conn, error) {
	for {
		nc, err := listener.Accept(l.Listener, l.stopping, func(err error, _ time.Duration) {
			l.metrics.acceptErrors.Inc()
			l.log.Warn("milter accept failed", slog.Any("error", err))
		})
		if err != nil {
			return nil, err
		}
		if c := l.enter(nc); c != nil {
			return c, nil
		}
		nc.Close()
	}
}

// enter admits a peer. It refuses without a reply, because the protocol has none.
func (g *guard) enter(nc net.Conn) *conn {
	c, why := g.place(nc)
	if why != "" {
		g.metrics.refused.WithLabelValues(why).Inc()
		g.log.Warn("milter connection refused", slog.String("from", peerText(nc)), slog.String("why", why))
	}
	return c
}

// place makes room for a connection, or says why not. A connection that was accepted
// while the filter stops is served: if it were closed, a mail would pass unchecked.
func (g *guard) place(nc net.Conn) (c *conn, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !listener.Admits(g.settings.AllowFrom, nc.RemoteAddr()):
		return nil, whyNetwork
	case len(g.open) >= g.settings.MaxConnections:
		return nil, whyTotal
	}
	c = &conn{Conn: nc, guard: g, taken: make(chan struct{})}
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

func (g *guard) leave(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.open[c]; ok {
		delete(g.open, c)
		g.metrics.active.Dec()
	}
}

// handed waits until the library reads every admitted connection, or has
// lost it, for this long at most.
func (g *guard) handed(most time.Duration) {
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

// stop ends waits for a next connection, once; the listeners are closed by the caller.
func (g *guard) stop() { close(g.stopping) }

// cut closes the connections that are to go, and returns how many there were.
func (g *guard) cut(which func(*conn) bool) int {
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
