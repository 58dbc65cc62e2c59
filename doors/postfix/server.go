package postfix

import (
	"context"
	"net"
	"time"

	"blockd/internal/listener"
)

// Server serves one protocol. Serve is called once.
type Server struct {
	service
	speak func(s *service, private bool) dialect
}

// stopTimeout bounds a stop: a request that has begun may take requestTime to arrive whole,
// and its answer writeTime to be read.
const stopTimeout = requestTime + writeTime + 5*time.Second

// Serve answers peers on the listeners until ctx ends. It still answers the pending
// requests. Then it closes every connection and returns nil. A
// listener that fails for good has the same effect, and Serve returns its error.
//
// A connection that is refused is closed before a request is read. Postfix then follows its
// own default action.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	server := listener.Server{
		Name: s.door.Name, Log: s.log, AllowFrom: s.settings.AllowFrom, Strangers: s.settings.Strangers, MaxConnections: s.settings.MaxConnections, StopTimeout: stopTimeout,
		Open: func(nc net.Conn) listener.Session {
			return newConn(&s.service, s.speak(&s.service, listener.Private(nc)), nc)
		},
		TurnAway:    func(_ net.Conn, why string) { s.metrics.refused.WithLabelValues(s.door.Name, why).Inc() },
		Connections: s.metrics.connections, AcceptErrors: s.metrics.acceptErrors,
	}
	return server.Serve(ctx, listeners...)
}
