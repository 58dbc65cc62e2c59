package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"
)

// Implicit marks a listener whose clients begin with TLS (RFC 8314, section 3.3).
// It needs Settings.TLS.
func Implicit(l net.Listener) net.Listener { return implicit{l} }

type implicit struct{ net.Listener }

// StartTLS does the server's side of a TLS handshake on conn, within
// Settings.TLSTimeout. After an error the caller must close conn: going
// on in the clear would let an attacker in between remove TLS.
//
// The end of ctx ends it. It leaves its deadline on conn.
func (s *Server) StartTLS(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if err := conn.SetDeadline(time.Now().Add(s.set.TLSTimeout)); err != nil {
		return nil, err
	}
	secured := tls.Server(conn, s.set.TLS)
	if err := secured.HandshakeContext(ctx); err != nil {
		s.metrics.handshakes.WithLabelValues("failed").Inc()
		s.log.Debug("tls handshake failed", slog.String("peer", conn.RemoteAddr().String()), slog.Any("error", err))
		return nil, err
	}
	s.metrics.handshakes.WithLabelValues("done").Inc()
	return secured, nil
}
