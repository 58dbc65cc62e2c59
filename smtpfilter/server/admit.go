package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"time"

	"blockd/smtpfilter/upstream"
)

// admit starts a session or a refusal. It never waits for the client.
func (s *Server) admit(ctx context.Context, run Run, conn net.Conn, overTLS bool) {
	err := s.watch.status().Err
	if errors.Is(err, upstream.ErrOpenRelay) || errors.Is(err, upstream.ErrOwnListener) {
		s.refuse(conn, overTLS, refusal{"open-relay", "421 4.3.0 " + s.set.Hostname + " Service not available, try again later"})
		return
	}
	peer := clientAddr(conn.RemoteAddr())
	counted := peer.Addr()
	proxy := s.trusts(counted)
	if proxy {
		counted = netip.Addr{} // all its clients come from there
	}
	if a := s.clients.enter(counted); a != admitted {
		s.refuse(conn, overTLS, s.limited(a))
		return
	}
	s.mu.Lock()
	s.open[conn] = struct{}{}
	s.mu.Unlock()
	s.sessions.Go(func() {
		defer func() {
			conn.Close() // a second time, if all went well
			s.mu.Lock()
			delete(s.open, conn)
			s.mu.Unlock()
			s.clients.leave(counted)
		}()
		defer s.survive(peer)
		client := peer
		if proxy {
			var ok bool
			if client, ok = s.behind(conn, overTLS); !ok {
				return
			}
			if client != peer { // else the proxy itself, whose health checks count towards no client's limit
				counted = client.Addr()
			}
		}
		if overTLS {
			secured, err := s.StartTLS(ctx, conn)
			if err != nil {
				return // counted; the client cannot be told in the clear
			}
			run(ctx, secured, client)
			return
		}
		run(ctx, conn, client)
	})
}

// survive ends a connection that has met a defect before its session began. A
// session has a recover of its own. The daemon goes on.
func (s *Server) survive(peer netip.AddrPort) {
	if cause := recover(); cause != nil {
		s.metrics.refused.WithLabelValues("panic").Inc()
		s.log.Error("connection panicked", slog.String("client", peer.Addr().String()), slog.Int("port", int(peer.Port())), slog.Any("panic", cause), slog.String("stack", string(debug.Stack())))
	}
}

// behind finds the client behind a proxy, and whether that client may connect. The proxy
// itself may always connect, to check whether blockd is up.
func (s *Server) behind(conn net.Conn, overTLS bool) (netip.AddrPort, bool) {
	client, err := s.proxied(conn)
	if err != nil {
		s.metrics.refused.WithLabelValues("proxy").Inc()
		if err != io.EOF { // io.EOF is a check whether the port is open
			s.log.Warn("proxy refused", slog.String("proxy", conn.RemoteAddr().String()), slog.Any("error", err))
		}
		return netip.AddrPort{}, false
	}
	if client == clientAddr(conn.RemoteAddr()) {
		return client, true
	}
	if a := s.clients.identify(client.Addr()); a != admitted {
		r := s.limited(a)
		s.metrics.refused.WithLabelValues(r.why).Inc()
		if !overTLS {
			farewell(conn, r.line)
		}
		return netip.AddrPort{}, false
	}
	return client, true
}

// refusal is why a connection gets no session, for the metric and the client.
type refusal struct{ why, line string }

// limited is the reply to a client over a limit.
func (s *Server) limited(a admission) refusal {
	switch a {
	case overClient:
		return refusal{"client", "421 4.7.0 " + s.set.Hostname + " Too many connections from your address"}
	case overRate:
		return refusal{"rate", "421 4.7.0 " + s.set.Hostname + " Too many new connections from your address, try again later"}
	}
	return refusal{"total", "421 4.7.0 " + s.set.Hostname + " Too many connections, try again later"}
}

// refuse says why and closes, all within 1 s. It does not make the caller wait. If
// TLS comes first, nothing can be said.
func (s *Server) refuse(conn net.Conn, overTLS bool, r refusal) {
	s.metrics.refused.WithLabelValues(r.why).Inc()
	if overTLS {
		conn.Close()
		return
	}
	select {
	case s.refusing <- struct{}{}:
	default:
		conn.Close()
		return
	}
	s.sessions.Go(func() {
		defer func() {
			conn.Close()
			<-s.refusing
		}()
		farewell(conn, r.line)
	})
}

// farewell says why, within 1 s. After the line it reads the client's input for a
// moment: closing a socket with unread input resets the connection,
// and the line would be lost.
func farewell(conn net.Conn, line string) {
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte(line + "\r\n")); err != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	buf := make([]byte, 512)
	for range 8 {
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}

// clientAddr returns a as an address and a port; zero if it is not of TCP.
func clientAddr(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
