package history

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Register registers the metrics of l with reg. It panics if reg already has them.
func (l *Log) Register(reg prometheus.Registerer) {
	auto := promauto.With(reg)
	auto.NewCounterFunc(prometheus.CounterOpts{Name: "blockd_history_records_total", Help: "Decisions written to the history."},
		func() float64 { return float64(l.written.Load()) })
	for reason, n := range map[string]*atomic.Uint64{"busy": &l.dropped, "disk": &l.failed} {
		auto.NewCounterFunc(prometheus.CounterOpts{Name: "blockd_history_dropped_total",
			Help:        "Decisions that the history lacks, by reason: busy (more came than could be written), disk (it could not be written).",
			ConstLabels: prometheus.Labels{"reason": reason}}, func() float64 { return float64(n.Load()) })
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_history_bytes", Help: "Size of the history on disk."},
		func() float64 { return float64(l.octets.Load()) })
}
