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

// Accept returns the next connection of l. Errors such as a lack of file
// descriptors pass: troubled is told of each, with the time until the next try. The
// error is net.ErrClosed, alone or wrapped, once done is closed. If l is closed before that, no
// connection comes any more, because another process has the socket now, and Accept waits for done.
func Accept(l net.Listener, done <-chan struct{}, troubled func(err error, retry time.Duration)) (net.Conn, error) {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		conn, err := l.Accept()
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, net.ErrClosed) {
			<-done
			return nil, err
		}
		troubled(err, wait)
		select {
		case <-time.After(wait):
		case <-done:
			return nil, net.ErrClosed
		}
	}
}
