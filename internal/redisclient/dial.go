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
func dialer(to *redis.UniversalOptions, most int) func(ctx context.Context, network, address string) (net.Conn, error) {
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
			return guardedSocket{&guarded{Conn: conn, most: most}, socket}, nil
		}
		return &guarded{Conn: conn, most: most}, nil
	}
}

// Bounds of an answer. A page of large values, of those that blockd reads, has less than half of either.
const (
	defaultAnswer = 64 << 20 // octets
	maxElements   = 1 << 18  // in all its arrays
	maxLine       = 64 << 10
	maxDepth      = 32
)

var (
	errAnswer   = errors.New("redis: invalid reply: longer or deeper than any answer that was asked for")
	errProtocol = errors.New("redis: invalid reply: it is none of protocol 2, which was asked for")
)

// guarded is a connection that ends at an answer beyond these bounds, and at one that is not of protocol 2. go-redis
// takes the memory that a server announces before it comes: "$9999999999999999" would end this process, and so would
// a length of a type of protocol 3, which it reads whatever was agreed.
type guarded struct {
	net.Conn
	most     int    // octets of one answer
	line     []byte // the beginning of a line that has not ended yet
	text     int    // octets of a text that are still to come
	open     []int  // of each array around: elements that are still to come
	octets   int    // of this answer, announced ones included
	elements int    // of this answer's arrays, announced ones included
}

type guardedSocket struct {
	*guarded
	syscall.Conn
}

// Read is that of a net.Conn.
func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if wrong := g.check(p[:n]); wrong != nil {
		return 0, wrong
	}
	return n, err
}

// check goes through what has come.
func (g *guarded) check(p []byte) error {
	for len(p) > 0 {
		if n := min(g.text, len(p)); n > 0 {
			if p, g.text = p[n:], g.text-n; g.text == 0 {
				g.ended()
			}
			continue
		}
		if len(g.line) == 0 && bytes.IndexByte([]byte("+-:$*"), p[0]) < 0 {
			return errProtocol
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			if g.line = append(g.line, p...); len(g.line) > maxLine {
				return errAnswer
			}
			return nil
		}
		g.line, p = append(g.line, p[:end]...), p[end+1:]
		if err := g.begins(g.line); err != nil {
			return err
		}
		g.line = g.line[:0]
	}
	return nil
}

// begins takes in a line: a short value, or the length of a text or of an array.
func (g *guarded) begins(line []byte) error {
	n, kind := 0, line[0]
	if kind == '$' || kind == '*' {
		var err error
		if n, err = strconv.Atoi(string(bytes.TrimRight(line[1:], "\r"))); err != nil {
			return errProtocol
		}
	}
	switch g.octets += len(line); {
	case len(line) > maxLine, n > g.most: // in whatever is added below there is no overflow then
		return errAnswer
	case kind == '$' && n >= 0:
		g.text = n + len("\r\n")
		g.octets += n
	case kind == '*' && n > 0:
		g.open = append(g.open, n)
		g.elements += n
	}
	if g.octets > g.most || g.elements > maxElements || len(g.open) > maxDepth {
		return errAnswer
	}
	if g.text == 0 && (kind != '*' || n <= 0) {
		g.ended()
	}
	return nil
}

// ended counts a value that is whole.
func (g *guarded) ended() {
	for i := len(g.open) - 1; i >= 0; i-- {
		if g.open[i]--; g.open[i] > 0 {
			return
		}
		g.open = g.open[:i]
	}
	g.octets, g.elements = 0, 0
}
