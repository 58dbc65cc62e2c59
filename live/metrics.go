package live

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counts counts events since the start.
type counts struct {
	added, replaced, removed, expired, failures atomic.Uint64
	broken                                      atomic.Pointer[error] // why the last write failed
}

func (c *counts) count(o Outcome) {
	switch {
	case !o.Changed():
	case o.Entry == nil:
		c.removed.Add(1)
	case o.Was == nil:
		c.added.Add(1)
	default:
		c.replaced.Add(1)
	}
}

func (c *counts) failed(err error) {
	c.failures.Add(1)
	c.broken.Store(&err)
}

// Register registers the metrics of s with reg.
func (s *Set) Register(reg prometheus.Registerer) error {
	return reg.Register(&collector{set: s,
		entries: prometheus.NewDesc("blockd_live_entries", "Live entries in force.", nil, nil),
		newer:   prometheus.NewDesc("blockd_live_newer_entries", "Live entries that the serving index has not got yet.", nil, nil),
		bytes:   prometheus.NewDesc("blockd_live_journal_bytes", "Size of the journal of live entries.", nil, nil),
		damaged: prometheus.NewDesc("blockd_live_damaged_records", "Lines of the journal of live entries that were found damaged at the start and left out.", nil, nil),
		changes: prometheus.NewDesc("blockd_live_changes_total", "Changes of live entries, by change: added, replaced, removed, expired.", []string{"change"}, nil),
		errors:  prometheus.NewDesc("blockd_live_write_errors_total", "Changes of live entries that could not be written, and were not made.", nil, nil),
	})
}

// collector asks a Set when the metrics are read.
type collector struct {
	set                                             *Set
	entries, newer, bytes, damaged, changes, errors *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n) }
	s := c.set
	s.writing.Lock()
	newer, size := s.view.Load().newer.held, int64(0)
	if s.journal != nil {
		size = s.journal.size
	}
	s.writing.Unlock()
	gauge(c.entries, float64(len(s.Entries())))
	gauge(c.newer, float64(newer))
	gauge(c.bytes, float64(size))
	gauge(c.damaged, float64(s.damaged))
	n := &s.counts
	out <- prometheus.MustNewConstMetric(c.errors, prometheus.CounterValue, float64(n.failures.Load()))
	for change, count := range map[string]uint64{"added": n.added.Load(), "replaced": n.replaced.Load(), "removed": n.removed.Load(), "expired": n.expired.Load()} {
		out <- prometheus.MustNewConstMetric(c.changes, prometheus.CounterValue, float64(count), change)
	}
}
