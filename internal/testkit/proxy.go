package testkit

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Link is how a Proxy treats what a server sends. The zero value passes it on.
type Link struct {
	Down    bool          // connections are reset at once
	Mute    bool          // nothing is passed on, either way
	Latency time.Duration // before each piece of what the server sends
	Single  bool          // each piece is one octet
	Cut     int64         // octets of the server after which a connection ends; 0 = none
	Reset   bool          // it ends by a reset
}

// Proxy is a TCP link to a server that is slow, or breaks, as a test says. It ends with the test.
type Proxy struct {
	Address string // HOST:PORT
	server  string

	mu     sync.Mutex // guards what follows
	link   Link
	conns  map[net.Conn]bool
	closed bool
}

// NewProxy starts a link to a server.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	l := Listen(t)
	p := &Proxy{Address: l.Addr().String(), server: server, conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.Set(Link{Down: true})
		all.Wait()
	})
	return p
}

// Set resets all connections, and says how later ones are treated.
func (p *Proxy) Set(l Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = l
	for c := range p.conns {
		reset(c)
	}
}

// reset closes a connection so that its peer sees a reset.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// hold keeps a connection for Set; false if the link is down.
func (p *Proxy) hold(c net.Conn) (Link, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	return p.link, !p.link.Down && !p.closed
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	link, up := p.hold(client)
	if !up {
		reset(client)
		return
	}
	if link.Mute {
		_, _ = io.Copy(io.Discard, client)
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		reset(client)
		return
	}
	defer p.drop(server)
	p.hold(server)
	var upward sync.WaitGroup
	upward.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close()
	})
	link.pass(client, server)
	if link.Reset {
		reset(client)
	}
	client.Close()
	upward.Wait()
}

// pass sends to the client what the server sends, until one of them ends or the link is cut.
func (l Link) pass(client io.Writer, server io.Reader) {
	if l.Cut > 0 {
		server = io.LimitReader(server, l.Cut)
	}
	piece := make([]byte, 32<<10)
	if l.Single {
		piece = piece[:1]
	}
	for {
		n, err := server.Read(piece)
		if l.Latency > 0 && n > 0 {
			<-time.After(l.Latency)
		}
		if n > 0 {
			if _, err := client.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
