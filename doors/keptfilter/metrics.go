package keptfilter

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics have the filter's name as their label.
type metrics struct {
	written, keys, bytes *prometheus.GaugeVec
	failures             *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	auto, label := promauto.With(reg), []string{"filter"}
	return metrics{
		written: auto.NewGaugeVec(prometheus.GaugeOpts{Name: "blockd_filter_last_success_timestamp_seconds",
			Help: "When a [[filter]] was last written, by Unix time."}, label),
		keys: auto.NewGaugeVec(prometheus.GaugeOpts{Name: "blockd_filter_keys",
			Help: "Keys of a [[filter]] when it was last written."}, label),
		bytes: auto.NewGaugeVec(prometheus.GaugeOpts{Name: "blockd_filter_bytes",
			Help: "Size of a [[filter]] when it was last written."}, label),
		failures: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_filter_failures_total",
			Help: "How often a [[filter]] could not be written."}, label),
	}
}

// show shows what was written of a filter, if anything was.
func (m *metrics) show(name string, r record) {
	if r.Generation == "" {
		return
	}
	m.written.WithLabelValues(name).Set(float64(r.Written.Unix()))
	m.keys.WithLabelValues(name).Set(float64(r.Keys))
	m.bytes.WithLabelValues(name).Set(float64(r.Bytes))
}
