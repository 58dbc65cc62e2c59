package snapshot

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	sequenceDesc = prometheus.NewDesc("blockd_snapshot_sequence", "The sequence of the snapshot in force; 0 if there is none.", []string{"channel"}, nil)
	ageDesc      = prometheus.NewDesc("blockd_snapshot_age_seconds", "The time since the newest snapshot that was seen was published.", []string{"channel"}, nil)
	refusedDesc  = prometheus.NewDesc("blockd_snapshot_refused_total", "Looks at the store that have failed, by the reason.", []string{"reason"}, nil)
	fetchedDesc  = prometheus.NewDesc("blockd_snapshot_fetched_bytes_total", "Octets that were fetched.", []string{"kind"}, nil)
)

// counters count what a node does.
type counters struct {
	mu     sync.Mutex
	refuse map[Reason]int64
	fetch  map[string]int64
}

func (c *counters) make() {
	c.refuse, c.fetch = map[Reason]int64{}, map[string]int64{kindDelta: 0, kindWhole: 0, kindManifest: 0}
	for _, r := range []Reason{Away, Signature, Form, Replayed, Expired, Clock, Object, Disk} {
		c.refuse[r] = 0
	}
}

func (c *counters) refused(r Reason) {
	c.mu.Lock()
	c.refuse[r]++
	c.mu.Unlock()
}

func (c *counters) fetched(kind string, octets int64) {
	c.mu.Lock()
	c.fetch[kind] += octets
	c.mu.Unlock()
}

type collector struct{ *Node }

func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sequenceDesc, ageDesc, refusedDesc, fetchedDesc} {
		out <- d
	}
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.Status()
	out <- prometheus.MustNewConstMetric(sequenceDesc, prometheus.GaugeValue, float64(s.Sequence), c.Channel)
	if age, known := s.Age(time.Now()); known {
		out <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, age.Seconds(), c.Channel)
	}
	c.counters.mu.Lock()
	refused, fetched := maps.Clone(c.counters.refuse), maps.Clone(c.counters.fetch)
	c.counters.mu.Unlock()
	for reason, n := range refused {
		out <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), string(reason))
	}
	for kind, n := range fetched {
		out <- prometheus.MustNewConstMetric(fetchedDesc, prometheus.CounterValue, float64(n), kind)
	}
}
