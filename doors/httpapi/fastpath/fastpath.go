// Package fastpath answers repeated requests on one connection without the loop of net/http.
//
// Most connections bring one check after the other, which differ in nothing but the query.
// The first of them is parsed by http.ReadRequest. A client that then sends the same octets
// around another query has sent the same request with another query, and the same handler
// answers it. This saves what net/http does for each request: a header of 20 allocations, a
// goroutine that watches for the client's end, eight deadlines. See
// docs/decisions/0020-fast-path.md.
package fastpath

import (
	"blockd/internal/listener"
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Slack is how much later than they should the deadlines of a connection may come. They are
// set once in this time: setting them for each request takes as long as the look-up.
const Slack = 15 * time.Second

// Listener is a listener for an http.Server. Each connection is on the fast path from its
// first octet to the first read that brings anything but one request of the fast path, whole
// and alone. From there on it is the server's, for good.
type Listener struct {
	net.Listener
	ctx     context.Context
	server  *http.Server
	path    string // of the requests
	handler http.Handler
	places  chan struct{} // one is taken by each connection on the fast path
}

// NewListener returns a Listener whose connections, most at a time, answer "GET path?query"
// within the server's limits, with its ConnContext and with handler, which is the one that the
// server's handler has for them. All leave the fast path when ctx ends.
//
// The server takes a connection for new as long as it is on the fast path. Its ReadTimeout
// would run out there, so it must be 0, and its Shutdown would cut off answers that Drain
// waits for.
func NewListener(ctx context.Context, l net.Listener, server *http.Server, path string, handler http.Handler, most int) *Listener {
	ctx = context.WithValue(ctx, http.ServerContextKey, server)
	return &Listener{Listener: l, ctx: ctx, server: server, path: path, handler: handler, places: make(chan struct{}, most)}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, fast: &exchange{listener: l, conn: c}}, nil
}

// Drain waits until no connection is on the fast path, and lets no other begin it. Call it
// after the end of NewListener's context. It returns when ctx ends at the latest.
func (l *Listener) Drain(ctx context.Context) {
	for range cap(l.places) {
		select {
		case l.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// conn is a connection as the server sees it. Its first Read lasts as long as it is on the
// fast path.
type conn struct {
	net.Conn
	fast *exchange // nil after the first Read
}

// NetConn returns the connection that the inner listener has accepted, as tls.Conn does.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite is listener.CloseWrite.
func (c *conn) CloseWrite() error { return listener.CloseWrite(c.Conn) }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if fast := c.fast; fast != nil {
		c.fast = nil
		return fast.read(p)
	}
	return c.Conn.Read(p)
}

// exchange is what the fast path knows of one connection.
type exchange struct {
	listener *Listener
	conn     net.Conn

	request *http.Request // the last that was parsed, with the query of the last
	after   []byte        // the octets after its query; nil: no request was parsed
	armed   time.Time     // conn's deadlines are good until then
	answer  answer
}

// read answers requests as long as they belong to the fast path. Then it reads into p what
// the server gets first.
func (e *exchange) read(p []byte) (n int, err error) {
	select {
	case e.listener.places <- struct{}{}:
	default: // drained
		return e.conn.Read(p)
	}
	defer func() { <-e.listener.places }()
	defer context.AfterFunc(e.listener.ctx, e.end)()
	for {
		if n, err = e.conn.Read(p); err != nil {
			return n, err
		}
		now := time.Now()
		if !e.recognise(p[:n]) {
			e.conn.SetReadDeadline(now.Add(e.listener.server.ReadHeaderTimeout)) // the server sets the other one
			return n, nil
		}
		e.arm(now)
		e.listener.handler.ServeHTTP(&e.answer, e.request)
		if _, err = e.conn.Write(e.answer.finish(now)); err != nil {
			return 0, err
		}
	}
}

// arm sets deadlines for an answer and for the request after it.
func (e *exchange) arm(now time.Time) {
	if now.Before(e.armed) {
		return
	}
	e.armed = now.Add(Slack)
	e.conn.SetReadDeadline(e.armed.Add(e.listener.server.IdleTimeout))
	e.conn.SetWriteDeadline(e.armed.Add(e.listener.server.WriteTimeout))
	if e.listener.ctx.Err() != nil {
		e.end() // again: it may have come before
	}
}

// end stops waiting for another request. An answer in progress is still written.
func (e *exchange) end() { e.conn.SetReadDeadline(time.Unix(1, 0)) }

const method = "GET "

// recognise reports whether b is a request of the fast path, which is then in e.request.
// Nothing is kept of others.
func (e *exchange) recognise(b []byte) bool {
	path := e.listener.path
	rest, get := bytes.CutPrefix(b, []byte(method))
	rest, ours := bytes.CutPrefix(rest, []byte(path))
	rest, asks := bytes.CutPrefix(rest, []byte("?"))
	n := bytes.IndexByte(rest, ' ')
	if !get || !ours || !asks || n < 1 || slices.ContainsFunc(rest[:n], func(c byte) bool { return c < '!' || c > '~' }) {
		return false
	}
	if after := rest[n:]; e.after == nil || !bytes.Equal(after, e.after) {
		if !e.parse(b) {
			return false
		}
		e.after = append(e.after[:0], after...)
	}
	e.request.RequestURI = string(b[len(method) : len(b)-len(rest)+n])
	e.request.URL.RawQuery = e.request.RequestURI[len(path)+len("?"):]
	return true
}

// parse reads b as net/http does, if it is one plain request with nothing after it.
func (e *exchange) parse(b []byte) bool {
	text := bytes.NewReader(b)
	in := bufio.NewReader(text)
	r, err := http.ReadRequest(in)
	if err != nil || in.Buffered()+text.Len() > 0 || !plain(r) {
		return false
	}
	ctx := e.listener.ctx
	if connContext := e.listener.server.ConnContext; connContext != nil {
		ctx = connContext(ctx, e.conn)
	}
	e.request = r.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, e.conn.LocalAddr()))
	e.request.RemoteAddr = e.conn.RemoteAddr().String()
	return true
}

// plain reports whether net/http would give r to the handler as it is and then read the next
// request: r has no body and leaves the connection open. Of its fields the handler may heed
// Authorization, which it does each time; the others change nothing.
func plain(r *http.Request) bool {
	if r.Proto != "HTTP/1.1" || r.Body != http.NoBody || r.Host == "" || strings.ContainsFunc(r.Host, outsideHost) {
		return false
	}
	for name, values := range r.Header {
		if len(values) != 1 || strings.ContainsFunc(values[0], func(c rune) bool { return c < ' ' || c > '~' }) {
			return false
		}
		switch name {
		case "Accept", "Accept-Encoding", "Accept-Language", "Authorization", "User-Agent":
		case "Connection":
			if values[0] != "keep-alive" {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func outsideHost(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(".:[]-", c)
}
