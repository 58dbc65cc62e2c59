package server

import "github.com/prometheus/client_golang/prometheus"

// metrics of the listeners and of the watch on upstream.
type metrics struct {
	refused      *prometheus.CounterVec // why
	acceptErrors prometheus.Counter
	up           prometheus.Gauge
	selfTests    *prometheus.CounterVec // result
}

func newMetrics(reg prometheus.Registerer, connections func() int) *metrics {
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "blockd_smtp_connections_refused_total",
			Help: "Connections closed without a session, by why: total or client (over that limit), open-relay (upstream failed the self-test).",
		}, []string{"why"}),
		acceptErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "blockd_smtp_accept_errors_total",
			Help: "Errors in accepting a connection, such as no file descriptors left.",
		}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "blockd_upstream_up",
			Help: "1 if upstream answered the last probe as it should, else 0.",
		}),
		selfTests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "blockd_upstream_selftest_total",
			Help: "Open-relay self-tests of upstream, by result: passed, open-relay, inconclusive.",
		}, []string{"result"}),
	}
	reg.MustRegister(m.refused, m.acceptErrors, m.up, m.selfTests,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "blockd_smtp_connections",
			Help: "SMTP client connections open now.",
		}, func() float64 { return float64(connections()) }))
	// All series exist from the start, so that a rate over them is never missing.
	for _, why := range []string{"total", "client", "open-relay"} {
		m.refused.WithLabelValues(why)
	}
	for _, result := range []string{"passed", "open-relay", "inconclusive"} {
		m.selfTests.WithLabelValues(result)
	}
	return m
}
