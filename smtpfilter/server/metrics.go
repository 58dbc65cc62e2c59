package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of the listeners and of the watch on upstream.
type metrics struct {
	refused      *prometheus.CounterVec // why
	handshakes   *prometheus.CounterVec // result
	acceptErrors prometheus.Counter
	up           prometheus.Gauge
	selfTests    *prometheus.CounterVec // result
}

func newMetrics(reg prometheus.Registerer, connections func() int) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		refused: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_smtp_connections_refused_total",
			Help: "Connections closed without a session, by why: total, client or rate (over that limit), proxy (no PROXY header from a proxy), panic (a defect of blockd), open-relay (upstream failed the self-test, or is this filter)."},
			[]string{"why"}),
		handshakes: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_smtp_tls_handshakes_total",
			Help: "TLS handshakes with clients, by result: done, failed."}, []string{"result"}),
		acceptErrors: auto.NewCounter(prometheus.CounterOpts{Name: "blockd_smtp_accept_errors_total",
			Help: "Errors in accepting a connection, such as no file descriptors left."}),
		up: auto.NewGauge(prometheus.GaugeOpts{Name: "blockd_upstream_up",
			Help: "1 if upstream answered the last probe as it should, else 0."}),
		selfTests: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_upstream_selftest_total",
			Help: "Open-relay self-tests of upstream, by result: passed, open-relay, undecided (refused, but not for relaying), inconclusive (no answer)."},
			[]string{"result"}),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_smtp_connections", Help: "SMTP client connections open now."},
		func() float64 { return float64(connections()) })
	// All series exist from the start, so that a rate over them is never missing.
	for _, why := range []string{"total", "client", "rate", "proxy", "panic", "open-relay"} {
		m.refused.WithLabelValues(why)
	}
	for _, result := range []string{"passed", "open-relay", "undecided", "inconclusive"} {
		m.selfTests.WithLabelValues(result)
	}
	for _, result := range []string{"done", "failed"} {
		m.handshakes.WithLabelValues(result)
	}
	return m
}
