package history

import "github.com/prometheus/client_golang/prometheus"

// Register registers the metrics of l.
func (l *Log) Register(reg prometheus.Registerer) error {
	return reg.Register(&collector{log: l,
		records: prometheus.NewDesc("blockd_history_records_total", "Decisions written to the history.", nil, nil),
		dropped: prometheus.NewDesc("blockd_history_dropped_total", "Decisions that the history lacks, by reason: busy (more came than could be written), disk (it could not be written).", []string{"reason"}, nil),
		bytes:   prometheus.NewDesc("blockd_history_bytes", "Size of the history on disk.", nil, nil),
	})
}

// collector asks a Log at each scrape.
type collector struct {
	log                     *Log
	records, dropped, bytes *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	l := c.log
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	counter(c.records, l.written.Load())
	counter(c.dropped, l.dropped.Load(), "busy")
	counter(c.dropped, l.failed.Load(), "disk")
	out <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(l.octets.Load()))
}
