package live

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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

// Register registers the metrics of s with reg. It panics if reg already has them.
func (s *Set) Register(reg prometheus.Registerer) {
	auto := promauto.With(reg)
	gauge := func(name, help string, value func() int64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	gauge("blockd_live_entries", "Live entries in force.", func() int64 { n, _ := s.InForce(); return int64(n) })
	gauge("blockd_live_newer_entries", "Live entries that the serving index has not got yet.", func() int64 { return int64(s.newer()) })
	gauge("blockd_live_journal_bytes", "Size of the journal of live entries.", s.journalSize)
	gauge("blockd_live_damaged_records", "Lines of the journal of live entries that were found damaged at the start and left out.", func() int64 { return int64(s.damaged) })
	n := &s.counts
	for change, count := range map[string]*atomic.Uint64{"added": &n.added, "replaced": &n.replaced, "removed": &n.removed, "expired": &n.expired} {
		auto.NewCounterFunc(prometheus.CounterOpts{Name: "blockd_live_changes_total", Help: "Changes of live entries, by change: added, replaced, removed, expired.",
			ConstLabels: prometheus.Labels{"change": change}}, func() float64 { return float64(count.Load()) })
	}
	auto.NewCounterFunc(prometheus.CounterOpts{Name: "blockd_live_write_errors_total", Help: "Changes of live entries that could not be written, and were not made."},
		func() float64 { return float64(n.failures.Load()) })
}

func (s *Set) journalSize() int64 {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.journal == nil {
		return 0
	}
	return s.journal.size
}
