package dnsbl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// graceTime is how long a door stays open at a stop, for questions that are on their way.
const graceTime = 100 * time.Millisecond

// Serve answers until ctx ends. Then it answers what has come, and closes all sockets and
// connections. A listener that fails for good has the same effect, and Serve returns its error.
//
// Each of packets must be a *net.UDPConn. Several may have one address (SO_REUSEPORT).
func (s *Server) Serve(ctx context.Context, packets []net.PacketConn, listeners []net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var loops sync.WaitGroup
	said := map[string]bool{}
	say := func(network string, a net.Addr) {
		if where := network + " " + a.String(); !said[where] {
			said[where] = true
			s.log.Info("dns listens", slog.String("network", network), slog.String("address", a.String()))
		}
	}
	for _, p := range packets {
		say("udp", p.LocalAddr())
		conn, ok := p.(*net.UDPConn)
		if !ok {
			cancel(fmt.Errorf("dns: %T is no UDP socket", p))
			break
		}
		socket, err := newSocket(conn)
		if err != nil {
			cancel(fmt.Errorf("dns: %w", err))
			break
		}
		loops.Go(func() { s.answerAll(ctx, socket) })
		defer conn.Close()
		context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Now().Add(graceTime)) })
	}
	for _, l := range listeners {
		say("tcp", l.Addr())
		loops.Go(func() {
			if err := s.accept(ctx, l); err != nil {
				cancel(err)
			}
		})
		context.AfterFunc(ctx, func() { l.Close() })
	}
	<-ctx.Done()
	loops.Wait()
	s.drain()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
