package testkit

import "net"

// Pipes is a listener whose connections are pipes, so that their deadlines follow the clock
// of a synctest bubble. Make it inside the bubble.
type Pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

// NewPipes returns a listener that nothing has dialled yet.
func NewPipes() *Pipes { return &Pipes{make(chan net.Conn), make(chan struct{})} }

// Accept implements net.Listener.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error { close(p.closed); return nil }

// Closed returns a channel that Close closes.
func (p *Pipes) Closed() <-chan struct{} { return p.closed }

// Addr implements net.Listener.
func (p *Pipes) Addr() net.Addr { return here }

// Dial connects from an IP address, without waiting for Accept.
func (p *Pipes) Dial(ip string) net.Conn {
	client, server := net.Pipe()
	go func() {
		select {
		case p.conns <- pipe{server, ip}:
		case <-p.closed:
		}
	}()
	return client
}

// pipe is a connection that comes from an IP address.
type pipe struct {
	net.Conn
	ip string
}

var here = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8025}

func (p pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(p.ip), Port: 1024} }
func (p pipe) LocalAddr() net.Addr  { return here }
