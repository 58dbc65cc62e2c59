package mysql

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"syscall"

	"blockd/sources/mirror"
)

const (
	// maxRow bounds what a server sends before a row is whole, in octets, and an answer without rows. A row may come in
	// any number of packets of 16 MiB, which the library puts together.
	maxRow = 32 << 20

	maxColumns = 4096 // of a table, and of a result
)

// wire is a connection that ends at a row, and at a number of columns, beyond these bounds. The library takes memory
// for as many columns as are announced.
type wire struct {
	net.Conn
	open  bool   // the connection has no TLS, so what comes can be read here
	left  int    // octets that may come yet
	begun bool   // a command was sent, and the head of its answer is not whole
	head  []byte // of that answer: a packet's head, and the number of columns
	wrong error  // why the connection has ended
}

// wireKey is what a context has a **wire for, where dial puts its connection.
type wireKey struct{}

func dial(open bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		w := &wire{Conn: conn, open: open, left: maxRow}
		if to, ok := ctx.Value(wireKey{}).(**wire); ok {
			*to = w
		}
		return w, nil
	}
}

// SyscallConn is that by which the library sees that a server has ended an idle connection.
func (w *wire) SyscallConn() (syscall.RawConn, error) { return w.Conn.(syscall.Conn).SyscallConn() }

// Write is that of a net.Conn. What is asked has an answer of its own.
func (w *wire) Write(p []byte) (int, error) {
	const first = 0 // number of a packet, which begins a command
	w.left = maxRow
	if len(p) > 4 && p[3] == first {
		w.begun, w.head = true, w.head[:0]
	}
	return w.Conn.Write(p)
}

// Read is that of a net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	if w.wrong != nil {
		return 0, w.wrong
	}
	n, err := w.Conn.Read(p)
	if w.left -= n; w.left < 0 {
		w.wrong = tooLong("a row of more than %d octets", maxRow)
	}
	const headed = 4 + 9 // octets: of a packet, and of the longest number
	if w.open && w.begun {
		w.head = append(w.head, p[:min(n, headed-len(w.head))]...)
		if length := len(w.head) - 4; length >= 0 && (length == 9 || length >= int(w.head[0])) {
			w.begun = false
			if count := number(w.head[4:]); count > maxColumns {
				w.wrong = tooLong("a result of %d columns", count)
			}
		}
	}
	if w.wrong != nil {
		return 0, w.wrong
	}
	return n, err
}

// number is how many columns the head of an answer announces; 0 if it is no result.
func number(head []byte) uint64 {
	octets := make([]byte, 8)
	if len(head) == 0 {
		return 0
	}
	switch head[0] {
	case 0xfc:
		copy(octets, head[1:min(len(head), 3)])
	case 0xfd:
		copy(octets, head[1:min(len(head), 4)])
	case 0xfe:
		copy(octets, head[1:])
	case 0x00, 0xfb, 0xff: // no result, a wish for a file, an error
	default:
		return uint64(head[0])
	}
	return binary.LittleEndian.Uint64(octets)
}

func tooLong(format string, args ...any) error {
	return &mirror.Error{Class: mirror.ClassQuery, Err: fmt.Errorf("what answers sends "+format+"; is this a MySQL?", args...)}
}
