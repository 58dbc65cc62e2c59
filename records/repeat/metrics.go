package repeat

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Register registers the metrics of t with reg. It panics if reg already has them.
func (t *Table) Register(reg prometheus.Registerer) {
	for what, n := range map[string]*atomic.Uint64{"refusal": &t.refusals, "line": &t.lines} {
		promauto.With(reg).NewCounterFunc(prometheus.CounterOpts{Name: "blockd_folded_total",
			Help:        "What a client repeated within a minute, so that one line stands for all of it, by kind: refusal (in the log and in the history), line (of the log alone).",
			ConstLabels: prometheus.Labels{"kind": what}}, func() float64 { return float64(n.Load()) })
	}
}
