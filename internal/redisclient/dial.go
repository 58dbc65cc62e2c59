package redisclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// dialer makes connections whose answers have bounds. With TLS a context ends the handshake too, which that of go-redis
// does not.
func dialer(to *redis.UniversalOptions) func(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: to.DialTimeout}
	dial := plain.DialContext
	if to.TLSConfig != nil {
		dial = (&tls.Dialer{NetDialer: plain, Config: to.TLSConfig}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if socket, ok := conn.(syscall.Conn); ok { // by which go-redis sees that a server has closed it
			return guardedSocket{&guarded{Conn: conn}, socket}, nil
		}
		return &guarded{Conn: conn}, nil
	}
}

// Bounds of an answer. Redis itself has no longer text by default, and lines of less than a kilobyte.
const (
	maxText     = 512 << 20
	maxElements = 1 << 20 // of one array
	maxLine     = 64 << 10
	maxDepth    = 32
)

var errAnswer = errors.New("redis: invalid reply: longer or deeper than any answer of a Redis")

// guarded is a connection that ends at an answer beyond these bounds. go-redis takes the memory that a server announces
// before it comes: "$9999999999999999" would end this process.
type guarded struct {
	net.Conn
	line []byte // the beginning of a line that has not ended yet
	text int    // octets of a text that are still to come
	open []int  // of each array around: elements that are still to come
}

type guardedSocket struct {
	*guarded
	syscall.Conn
}

// Read is that of a net.Conn.
func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if !g.check(p[:n]) {
		return 0, errAnswer
	}
	return n, err
}

// check goes through what has come; false if it is out of bounds.
func (g *guarded) check(p []byte) bool {
	for len(p) > 0 {
		if n := min(g.text, len(p)); n > 0 {
			if p, g.text = p[n:], g.text-n; g.text == 0 {
				g.ended()
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			g.line = append(g.line, p...)
			return len(g.line) <= maxLine
		}
		if g.line, p = append(g.line, p[:end]...), p[end+1:]; len(g.line) > maxLine || !g.begins(g.line) {
			return false
		}
		g.line = g.line[:0]
	}
	return true
}

// begins takes in a line: a short value, or the length of a text or of an array.
func (g *guarded) begins(line []byte) bool {
	kind := byte(0)
	if len(line) > 0 {
		kind = line[0]
	}
	if kind != '$' && kind != '*' {
		g.ended()
		return true
	}
	n, err := strconv.Atoi(string(bytes.TrimRight(line[1:], "\r")))
	switch {
	case err != nil:
		return false
	case n < 0, kind == '*' && n == 0:
		g.ended()
	case kind == '$':
		g.text = n + len("\r\n")
		return n <= maxText
	default:
		g.open = append(g.open, n)
		return n <= maxElements && len(g.open) <= maxDepth
	}
	return true
}

// ended counts a value that is whole.
func (g *guarded) ended() {
	for i := len(g.open) - 1; i >= 0; i-- {
		if g.open[i]--; g.open[i] > 0 {
			return
		}
		g.open = g.open[:i]
	}
}
