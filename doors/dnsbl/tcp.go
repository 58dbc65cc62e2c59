package dnsbl

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"blockd/internal/listener"
)

// The bounds of a TCP connection.
const (
	idleTime    = 10 * time.Second // without a query; resolvers are to expect a few seconds (RFC 7766, section 6.2.3)
	crowdedTime = time.Second      // instead of idleTime, while more than half of the connections are taken
	queryTime   = 5 * time.Second  // from the first octet of a query to its last
	writeTime   = 5 * time.Second  // until the client has taken the answers
	stopTimeout = queryTime + writeTime + 5*time.Second

	maxTCPQuery = 4 << 10 // octets of a query
	flushSize   = 8 << 10 // answers to pipelined queries are sent from here on
)

// session is one TCP connection.
type session struct {
	worker
	conn     net.Conn
	in       *bufio.Reader
	out      []byte
	query    []byte
	stopping atomic.Bool
}

// accept serves every connection until ctx ends.
func (s *Server) accept(ctx context.Context, l net.Listener) error {
	for {
		conn, err := listener.Accept(l, ctx.Done(), func(err error, retry time.Duration) {
			s.metrics.errors.Inc()
			s.log.Error("dns accept failed", slog.Any("error", err), slog.Duration("retry", retry))
		})
		switch {
		case err == nil:
			s.admitSession(conn)
		case ctx.Err() != nil:
			return nil
		default:
			return fmt.Errorf("dns: %w", err)
		}
	}
}

// admitSession serves a connection, or closes it.
func (s *Server) admitSession(conn net.Conn) {
	c, client := &session{worker: worker{Server: s}, conn: conn, in: bufio.NewReaderSize(conn, 512)}, netip.Prefix{}
	if peer, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		client = listener.Network(peer.AddrPort().Addr())
	}
	why := ""
	s.mu.Lock()
	switch {
	case !listener.Admits(s.settings.AllowFrom, conn.RemoteAddr()):
		why = badPeer
	case len(s.open) >= s.settings.MaxConnections:
		why = tooMany
	case s.clients[client] >= max(1, s.settings.MaxConnections/2):
		why = tooManyHere
	default:
		s.open[c] = client
		s.clients[client]++
		s.metrics.connections.Inc()
	}
	s.mu.Unlock()
	if why != "" {
		s.metrics.closed[why].Inc()
		if why == badPeer && s.settings.Strangers != nil {
			s.settings.Strangers.TurnedAway(conn.RemoteAddr())
		} else {
			s.calm.Warn("dns connection refused", slog.String("peer", conn.RemoteAddr().String()), slog.String("why", why))
		}
		conn.Close()
		return
	}
	s.sessions.Go(func() {
		defer s.ended(c)
		c.serve()
	})
}

// ended gives the place of a session free.
func (s *Server) ended(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := s.open[c]
	delete(s.open, c)
	if s.clients[client]--; s.clients[client] == 0 {
		delete(s.clients, client)
	}
	s.metrics.connections.Dec()
}

// Connections is the number of TCP connections that are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// crowded reports whether more than half of the places are taken.
func (s *Server) crowded() bool {
	return s.Connections() > s.settings.MaxConnections/2
}

// serve answers until the client, a fault or stop ends the connection.
func (c *session) serve() {
	defer c.conn.Close()
	defer func() {
		if p := recover(); p != nil {
			c.calm.Warn("dns panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			c.metrics.closed[ourDefect].Inc()
		}
	}()
	for {
		if err := c.read(); err != nil {
			_ = c.flush() // what came before was a question
			c.close(err)
			return
		}
		c.out = append(c.out, 0, 0)
		start := len(c.out)
		c.out = c.reply(c.out, c.query, byLists, maxMessage)
		size := len(c.out) - start
		if size == 0 {
			c.out = c.out[:start-2]
			_ = c.flush()
			return // no query: such a client does not speak DNS
		}
		binary.BigEndian.PutUint16(c.out[start-2:], uint16(size))
		if c.in.Buffered() > 0 && len(c.out) < flushSize {
			continue
		}
		if err := c.flush(); err != nil {
			c.close(err)
			return
		}
		if c.stopping.Load() && c.in.Buffered() == 0 {
			return
		}
	}
}

// errors of a session.
var (
	errIdle   = errors.New("idle")
	errLong   = errors.New("query too long")
	errUnread = errors.New("answers not read")
)

// close counts why a connection ends where it is not the client's wish.
func (c *session) close(err error) {
	switch {
	case errors.Is(err, errLong):
		c.metrics.closed[tooLong].Inc()
	case errors.Is(err, errUnread):
		c.metrics.closed[notRead].Inc()
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.metrics.closed[tooSlow].Inc()
	}
}

// read reads the next query. Answers that wait go out before it waits.
func (c *session) read() error {
	idle := idleTime
	if c.crowded() {
		idle = crowdedTime
	}
	if c.in.Buffered() == 0 {
		c.await(idle)
		if _, err := c.in.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
			return errIdle
		} else if err != nil {
			return err
		}
	}
	c.conn.SetReadDeadline(time.Now().Add(queryTime))
	var head [2]byte
	if err := c.fill(head[:]); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint16(head[:]))
	if size > maxTCPQuery {
		return errLong
	}
	if cap(c.query) < size {
		c.query = make([]byte, size)
	}
	c.query = c.query[:size]
	return c.fill(c.query)
}

// fill reads into octets. Answers that wait go out if the rest has not come yet: the client may
// send it only after them.
func (c *session) fill(octets []byte) error {
	if c.in.Buffered() < len(octets) {
		if err := c.flush(); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(c.in, octets)
	return err
}

// await sets how long the next query may take to begin.
func (c *session) await(limit time.Duration) {
	c.conn.SetReadDeadline(time.Now().Add(limit))
	if c.stopping.Load() { // before stop has set its deadline, or after: it is set
		c.conn.SetReadDeadline(time.Now().Add(graceTime))
	}
}

// flush sends the answers.
func (c *session) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	c.conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := c.conn.Write(c.out)
	if c.out = c.out[:0]; errors.Is(err, os.ErrDeadlineExceeded) {
		return errUnread
	}
	return err
}

// stop ends the session after the queries that have come.
func (c *session) stop() {
	c.stopping.Store(true)
	c.conn.SetReadDeadline(time.Now().Add(graceTime))
}

// drain ends every session.
func (s *Server) drain() {
	s.mu.Lock()
	for c := range s.open {
		c.stop()
	}
	s.mu.Unlock()
	timer := time.AfterFunc(stopTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.open {
			c.conn.Close()
		}
	})
	defer timer.Stop()
	s.sessions.Wait()
}
