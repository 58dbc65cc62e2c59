// Package listener takes connections for the front doors: what passes by itself is
// waited out.
package listener

import (
	"errors"
	"net"
	"time"
)

// The bounds of the wait between two tries, which doubles.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = time.Second
)

// CloseWrite ends what a connection sends, where its network knows of that, and leaves what the peer sends open: a
// socket that is closed with unread input resets the connection, and the last answer is lost. A wrapper of a
// connection has a method that calls it, for net/http.
func CloseWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Accept returns the next connection of l. Errors such as a lack of file
// descriptors pass: troubled is told of each, with the time until the next try. The
// error is net.ErrClosed, alone or wrapped, once l is closed, or done during a wait.
func Accept(l net.Listener, done <-chan struct{}, troubled func(err error, retry time.Duration)) (net.Conn, error) {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		conn, err := l.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		troubled(err, wait)
		select {
		case <-time.After(wait):
		case <-done:
			return nil, net.ErrClosed
		}
	}
}
