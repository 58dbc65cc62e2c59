package listener_test

import (
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/listener"
	"blockd/internal/testkit"
)

// script is a listener that answers Accept with these errors, nil is a connection.
type script struct {
	net.Listener
	answers []error
}

func (s *script) Accept() (net.Conn, error) {
	err := s.answers[0]
	s.answers = s.answers[1:]
	if err != nil {
		return nil, err
	}
	return &net.TCPConn{}, nil
}

func TestAcceptWaitsOutWhatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lack := &net.OpError{Op: "accept", Err: syscall.EMFILE}
		s := &script{answers: slices.Concat(slices.Repeat([]error{lack}, 10), []error{nil, lack, nil})}
		var waits []time.Duration
		for range 2 {
			conn, err := listener.Accept(s, nil, func(err error, retry time.Duration) {
				testkit.IsError(t, "troubled by", err, syscall.EMFILE)
				waits = append(waits, retry)
			})
			if conn == nil || err != nil {
				t.Errorf("Accept() = %v, %v, want a connection", conn, err)
			}
		}
		const ms = time.Millisecond
		want := []time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, time.Second, time.Second,
			5 * ms} // a new patience behind each connection
		testkit.EqualSlices(t, "waits", waits, want)
	})
}

func TestAcceptEnds(t *testing.T) {
	over := fmt.Errorf("accept: %w", net.ErrClosed)
	if _, err := listener.Accept(&script{answers: []error{over}}, nil, nil); err != over {
		t.Errorf("closed listener: %v, want %v", err, over)
	}
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		s := &script{answers: []error{syscall.EMFILE}}
		_, err := listener.Accept(s, done, func(error, time.Duration) { close(done) })
		testkit.IsError(t, "done during a wait", err, net.ErrClosed)
	})
}
