// Package health answers the probes of whatever keeps blockd running: without a token, and without a word about mail,
// lists or people.
package health

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"blockd/internal/listener"
)

const (
	// maxConnections bounds the open connections. The oldest gives way to the newest, so that
	// connections which ask nothing keep no probe out.
	maxConnections = 64
	// requestTimeout is the time of a connection, which carries one request.
	requestTimeout = 3 * time.Second
	// lockTimeout is how long the locks of the daemon may be held until it counts as hung. It leaves time for the answer.
	lockTimeout = 2 * time.Second
	maxHeader   = 4 << 10 // octets of a request's header
)

// Server is the health door. The fields are set before Serve, which is called once.
type Server struct {
	// Ready reports whether mail can be decided now. It must not block.
	Ready func() bool
	// Locks takes and releases the locks that all work depends on. It returns unless one is held for good.
	Locks func()
	Log   *slog.Logger

	inLocks chan struct{} // holds one value while Locks runs
}

// Serve answers until ctx ends, and then nil. A listener that fails for good is an error.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	s.inLocks = make(chan struct{}, 1)
	srv := &http.Server{Handler: s.handler(), ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)} // strangers may cause any number of its lines
	srv.SetKeepAlivesEnabled(false)
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		s.Log.Info("health listens", slog.String("address", l.Addr().String()))
		bound := listener.Bound(l, maxConnections, ctx.Done(), func(err error, retry time.Duration) {
			s.Log.Error("health accept failed", slog.Any("error", err), slog.Duration("retry", retry))
		})
		go func() { failed <- srv.Serve(bound) }()
	}
	var err error
	left := len(listeners)
	select {
	case <-ctx.Done():
	case err = <-failed:
		left--
	}
	srv.Close()
	for range left {
		<-failed
	}
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, good := range map[string]func() bool{"/readyz": s.Ready, "/livez": s.alive} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			code, word := http.StatusOK, "ok\n"
			if !good() {
				code, word = http.StatusServiceUnavailable, "not ok\n"
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(code)
			io.WriteString(w, word)
		})
	}
	return mux
}

// alive reports whether the locks can be taken. If they are held for good, one goroutine waits for them, however many probes ask.
func (s *Server) alive() bool {
	late := time.NewTimer(lockTimeout)
	defer late.Stop()
	select {
	case s.inLocks <- struct{}{}:
	case <-late.C:
		return false
	}
	through := make(chan struct{})
	go func() {
		s.Locks()
		<-s.inLocks
		close(through)
	}()
	select {
	case <-through:
		return true
	case <-late.C:
		return false
	}
}
