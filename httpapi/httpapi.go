// Package httpapi is the front door for programs: it answers whether a sender is
// listed, shows the state of the lists, and serves metrics. It translates what
// package policy decides and adds nothing.
//
// A sender that is not listed is 200 with "clear", never 404: the question was
// answered. Errors are about requests, and are problem details (RFC 9457).
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"blockd/policy"
	"blockd/reload"
)

// Settings of a Server. The zero value is safe on a loopback address.
type Settings struct {
	// Token is wanted as "Authorization: Bearer TOKEN" for everything but
	// /healthz; "" asks for none. See ReadToken.
	Token string
	// Hosts are names that a request may have in its Host header when there is no
	// token, besides IP addresses and localhost. Any other name is refused: a web
	// page whose name is made to lead to a loopback address would be asking.
	Hosts []string
	// MaxConnections at a time; 0 = 256. Others wait.
	MaxConnections int
}

// The limits of a request. A header holds a sender of any legal length many
// times over; the times are for clients that stall, not for slow answers.
const (
	maxHeader      = 16 << 10
	headerTimeout  = 5 * time.Second
	requestTimeout = 30 * time.Second // to read a request, and to write an answer
	idleTimeout    = 2 * time.Minute
	graceTimeout   = 5 * time.Second // for requests under way at the end
	defaultConns   = 256
)

// Server answers HTTP requests. It is safe for concurrent use.
type Server struct {
	settings Settings
	checker  *policy.Checker
	status   func() reload.Status
	log      *slog.Logger
	handler  http.Handler
}

// route is one resource with the methods that it has.
type route struct {
	path, about string
	get, post   http.HandlerFunc
}

// New returns a Server that asks checker. status is what /readyz and /v1/lists
// show: a caller that knows of more than lists adds its own Problems to it.
// /metrics shows what metrics gathers.
func New(s Settings, checker *policy.Checker, status func() reload.Status, metrics prometheus.Gatherer, log *slog.Logger) *Server {
	srv := &Server{settings: s, checker: checker, status: status, log: log}
	routes := []route{
		{path: "/v1/check", about: "?sender=ADDRESS[&client=IP], ?ip= or ?domain=, with explain=1 also how; POST: many senders", get: srv.check, post: srv.checkMany},
		{path: "/v1/lists", about: "the lists in service", get: srv.lists},
		{path: "/healthz", about: "200 while the daemon runs", get: srv.healthz},
		{path: "/readyz", about: "200 when it can decide, 503 when not, and what is wrong", get: srv.readyz},
		{path: "/metrics", about: "for Prometheus", get: promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
			ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4, Timeout: requestTimeout,
		}).ServeHTTP},
	}
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.path, r.serve)
	}
	mux.HandleFunc("/{$}", route{get: root(routes)}.serve)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "no such resource; / lists them")
	})
	srv.handler = srv.guard(mux)
	return srv
}

func (r route) serve(w http.ResponseWriter, req *http.Request) {
	switch {
	case r.get != nil && (req.Method == http.MethodGet || req.Method == http.MethodHead):
		r.get(w, req)
	case r.post != nil && req.Method == http.MethodPost:
		r.post(w, req)
	default:
		allow := "GET, HEAD"
		if r.post != nil {
			allow += ", POST"
		}
		w.Header().Set("Allow", allow)
		fail(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s is not for this resource, which has %s", req.Method, allow))
	}
}

// root answers / for people.
func root(routes []route) http.HandlerFunc {
	var b strings.Builder
	b.WriteString("blockd\n\n")
	for _, r := range routes {
		fmt.Fprintf(&b, "%-10s  %s\n", r.path, r.about)
	}
	return func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, b.String()) }
}

// Handler returns what Serve serves, for tests and for another server.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers on l until ctx ends; requests under way may then finish for a
// moment, and streams are cut off. It closes l. It returns nil after ctx.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	conns := s.settings.MaxConnections
	if conns <= 0 {
		conns = defaultConns
	}
	srv := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout, // streams extend this and the next as they go
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTimeout)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(netutil.LimitListener(l, conns))
	if stop() { // it ended by itself
		return err
	}
	<-ended
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// knownHost reports whether a Host header may be answered without a token.
func (s *Server) knownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return host == "" || host == "localhost" || net.ParseIP(host) != nil || slices.Contains(s.settings.Hosts, host)
}
