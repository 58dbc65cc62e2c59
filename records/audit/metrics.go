package audit

import "github.com/prometheus/client_golang/prometheus"

var (
	linesDesc      = prometheus.NewDesc("blockd_audit_lines_total", "Lines that this process has written into the audit journal.", nil, nil)
	unwritableDesc = prometheus.NewDesc("blockd_audit_unwritable", "1 while the audit journal cannot be written, and no change is made; else 0.", nil, nil)
)

// Describe is of prometheus.Collector. It, and Collect, are not for a nil Log.
func (l *Log) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, to) }

// Collect is of prometheus.Collector.
func (l *Log) Collect(to chan<- prometheus.Metric) {
	unwritable := 0.0
	if l.Problem() != nil {
		unwritable = 1
	}
	to <- prometheus.MustNewConstMetric(linesDesc, prometheus.CounterValue, float64(l.written.Load()))
	to <- prometheus.MustNewConstMetric(unwritableDesc, prometheus.GaugeValue, unwritable)
}
