package remote

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// result is a word of blockd_fetch_total{result}.
type result string

const (
	replaced  result = "changed"   // the copy was replaced
	unchanged result = "unchanged" // the server has what the copy holds
	failed    result = "failed"    // no whole answer
	refused   result = "refused"   // a whole answer that is not taken
)

type metrics struct {
	fetches     *prometheus.CounterVec
	lastSuccess *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer, sources []*source) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		fetches: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_fetch_total",
			Help: "Fetches of a remote list, by result: changed, unchanged, failed (no whole answer), refused (an answer that is no list)."},
			[]string{"list", "result"}),
		lastSuccess: auto.NewGaugeVec(prometheus.GaugeOpts{Name: "blockd_fetch_last_success_timestamp_seconds",
			Help: "When the server of a remote list last gave or confirmed the local copy, by Unix time; 0 if never."},
			[]string{"list"}),
	}
	for _, s := range sources {
		m.lastSuccess.WithLabelValues(s.Name)
		for _, r := range []result{replaced, unchanged, failed, refused} {
			m.fetches.WithLabelValues(s.Name, string(r))
		}
	}
	return m
}

func (m *metrics) count(list string, r result) {
	m.fetches.WithLabelValues(list, string(r)).Inc()
	if r == replaced || r == unchanged {
		m.lastSuccess.WithLabelValues(list).SetToCurrentTime()
	}
}
