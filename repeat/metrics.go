package repeat

import "github.com/prometheus/client_golang/prometheus"

// Register registers the metrics of t.
func (t *Table) Register(reg prometheus.Registerer) error {
	for what, n := range map[string]func() float64{
		"refusal": func() float64 { return float64(t.refusals.Load()) },
		"line":    func() float64 { return float64(t.lines.Load()) },
	} {
		err := reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "blockd_folded_total",
			Help:        "What a client repeated within a minute, so that one line stands for all of it, by kind: refusal (in the log and in the history), line (of the log alone).",
			ConstLabels: prometheus.Labels{"kind": what}}, n))
		if err != nil {
			return err
		}
	}
	return nil
}
