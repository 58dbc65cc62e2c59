package httpapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/doors/httpapi/session"
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

// The ways to sign in, what becomes of it, and why sessions end before their time.
const (
	signInToken    = "token"
	signInProvider = "provider"

	signInDone     = "done"
	signInFailed   = "failed"
	signInTooOften = "too-often"
	signInAway     = "away"

	endedSignOut = "sign-out"
	endedCrowded = "crowded"
	endedByOther = "admin"
)

func newSignIns(reg prometheus.Registerer) *prometheus.CounterVec {
	c := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "blockd_http_sign_ins_total",
		Help: "Attempts of browsers to sign in, by way (token, provider) and result: done, failed, too-often, away (the provider)."}, []string{"way", "result"})
	for _, result := range []string{signInDone, signInFailed, signInTooOften} {
		c.WithLabelValues(signInToken, result)
		c.WithLabelValues(signInProvider, result)
	}
	c.WithLabelValues(signInProvider, signInAway)
	return c
}

func newEnded(reg prometheus.Registerer) *prometheus.CounterVec {
	c := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "blockd_http_sessions_ended_total",
		Help: "Sessions of browsers that ended before their time, by cause: sign-out, admin (somebody ended them), crowded (the holder or all together had as many as there may be)."}, []string{"cause"})
	for _, cause := range []string{endedSignOut, endedCrowded, endedByOther} {
		c.WithLabelValues(cause)
	}
	return c
}

func newOpenSessions(reg prometheus.Registerer, all *session.Set) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_http_sessions",
		Help: "Sessions of browsers that have not ended by time or sign-out; one whose token was revoked opens nothing."},
		func() float64 { return float64(len(all.All(time.Now()))) })
}

func newPanics(reg prometheus.Registerer) prometheus.Counter {
	return promauto.With(reg).NewCounter(prometheus.CounterOpts{Name: "blockd_http_panics_total",
		Help: "HTTP requests cut off by a panic, which is a defect of blockd: please report the stack in the log."})
}

func (s *Server) refused(reason string) { s.refusals.WithLabelValues(reason).Inc() }
