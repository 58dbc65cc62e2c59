package correspondents

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	lenDesc     = prometheus.NewDesc("blockd_correspondents", "Addresses that users of this server write to, as far as they are remembered.", nil, nil)
	learnedDesc = prometheus.NewDesc("blockd_correspondents_learned_total", "Recipients that correspondents were learned from.", nil, nil)
	refusedDesc = prometheus.NewDesc("blockd_correspondents_full_total", "Recipients that were not learned, since there is no room left for newcomers.", nil, nil)
	excusedDesc = prometheus.NewDesc("blockd_correspondents_excused_total", "Recipients of mail that a list would have refused, and that passed since its sender is a correspondent with proof.", nil, nil)
	failedDesc  = prometheus.NewDesc("blockd_correspondents_save_errors_total", "Times that the correspondents could not be saved.", nil, nil)
)

// Describe is of prometheus.Collector. It, and Collect, are not for a nil Set.
func (s *Set) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, to) }

// Collect is of prometheus.Collector.
func (s *Set) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(lenDesc, prometheus.GaugeValue, float64(s.Len()))
	for _, c := range []struct {
		desc *prometheus.Desc
		n    uint64
	}{{learnedDesc, s.learned.Load()}, {refusedDesc, s.refused.Load()}, {excusedDesc, s.excused.Load()}, {failedDesc, s.failures.Load()}} {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.n))
	}
}
