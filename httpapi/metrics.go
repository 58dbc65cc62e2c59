package httpapi

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The reasons to refuse a request or a connection before its question is read.
const (
	refusedConnections = "connections" // of one client, or without a request when others need the place
	refusedHost        = "host"
	refusedOrigin      = "origin"
	refusedRate        = "rate"
	refusedToken       = "token"
)

// newRefusals counts what is refused. Each reason is there from the start: a rate over
// what appears with its first event misses that.
func newRefusals(reg prometheus.Registerer) *prometheus.CounterVec {
	c := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "blockd_http_refused_total",
		Help: "HTTP requests and connections refused before what they ask is looked at, by reason: connections (more of one client than it may have, or without a request when another needs the place), host, origin, rate, token."},
		[]string{"reason"})
	for _, reason := range []string{refusedConnections, refusedHost, refusedOrigin, refusedRate, refusedToken} {
		c.WithLabelValues(reason)
	}
	return c
}

func newPanics(reg prometheus.Registerer) prometheus.Counter {
	return promauto.With(reg).NewCounter(prometheus.CounterOpts{Name: "blockd_http_panics_total",
		Help: "HTTP requests cut off by a panic, which is a defect of blockd: please report the stack in the log."})
}

func (s *Server) refused(reason string) { s.refusals.WithLabelValues(reason).Inc() }
