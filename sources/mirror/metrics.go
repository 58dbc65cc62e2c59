package mirror

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	upDesc     = prometheus.NewDesc("blockd_source_up", "1 if the source of the list is followed, 0 if it is away or refused and the copy serves on.", []string{"list"}, nil)
	lagDesc    = prometheus.NewDesc("blockd_source_lag_seconds", "The time since the copy was last known to have all that the source holds.", []string{"list"}, nil)
	rowsDesc   = prometheus.NewDesc("blockd_source_rows", "The entries of the copy.", []string{"list"}, nil)
	missedDesc = prometheus.NewDesc("blockd_source_missed_total", "Entries that had changed, as only a full read has found.", []string{"list"}, nil)
	errorsDesc = prometheus.NewDesc("blockd_source_errors_total", "Attempts to follow the source that have failed, by the class of the error.", []string{"list", "class"}, nil)
)

// collector shows the state of all sources.
type collector struct{ *Keeper }

func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, lagDesc, rowsDesc, missedDesc, errorsDesc} {
		out <- d
	}
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	now := time.Now()
	for _, f := range c.followers {
		f.mu.Lock()
		s, failed := f.status, maps.Clone(f.errors)
		f.mu.Unlock()
		gauge := func(d *prometheus.Desc, value float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, f.Name)
		}
		up := 0.0
		if s.State == OK {
			up = 1
		}
		gauge(upDesc, up)
		if !s.Confirmed.IsZero() {
			gauge(lagDesc, s.Lag(now).Seconds())
		}
		gauge(rowsDesc, float64(s.Rows))
		out <- prometheus.MustNewConstMetric(missedDesc, prometheus.CounterValue, float64(s.Missed), f.Name)
		for class, n := range failed {
			out <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(n), f.Name, string(class))
		}
	}
}
