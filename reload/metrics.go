package reload

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/index/kept"
	"blockd/lists"
)

type metrics struct {
	lastSuccess prometheus.Gauge
	lastGood    prometheus.Gauge
	reloads     *prometheus.CounterVec
	updates     prometheus.Counter
	dropped     *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		lastSuccess: auto.NewGauge(prometheus.GaugeOpts{Name: "blockd_reload_last_success_timestamp_seconds",
			Help: "When all lists as they then were served, by Unix time."}),
		lastGood: auto.NewGauge(prometheus.GaugeOpts{Name: "blockd_reload_last_attempt_success",
			Help: "1 if all lists serve as they are now, 0 if a refused one keeps an older generation in service."}),
		reloads: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_reloads_total",
			Help: "Reloads of lists that had changed or were asked for, by result."}, []string{"result"}),
		updates: auto.NewCounter(prometheus.CounterOpts{Name: "blockd_reload_updates_total",
			Help: "Reloads whose small change was served from memory at once, before the index was built anew."}),
		dropped: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_list_refused_lines_total",
			Help: "Lines that were refused when a list was loaded and had not been before, by list and class."}, []string{"list", "class"}),
	}
	for _, o := range outcomes {
		if o.count != "" {
			m.reloads.WithLabelValues(o.count)
		}
	}
	return m
}

// attempt counts a look; good: all lists serve as they are now.
func (m *metrics) attempt(count string, good bool) {
	if count == "" {
		return
	}
	m.reloads.WithLabelValues(count).Inc()
	m.lastGood.Set(0)
	if good {
		m.lastGood.Set(1)
		m.lastSuccess.SetToCurrentTime()
	}
}

// collector reads the serving generation when it is asked.
type collector struct{ r *Reloader }

var (
	listEntries = prometheus.NewDesc("blockd_list_entries", "Entries of a list in the serving generation.", []string{"list"}, nil)
	listStale   = prometheus.NewDesc("blockd_list_stale", "1 if what serves of a list is older than its max_age, else 0.", []string{"list"}, nil)
	listLeftOut = prometheus.NewDesc("blockd_list_lines_left_out", "Lines of a list in service that were refused, by list and class.", []string{"list", "class"}, nil)
	listHeld    = prometheus.NewDesc("blockd_list_held_entries", "Entries of a list that are held back: they would refuse senders who wrote lately, or correspondents.", []string{"list"}, nil)
	listWaiting = prometheus.NewDesc("blockd_list_proposal_waiting_seconds", "For how long a list has had something that waits to be adopted. Absent else.", []string{"list"}, nil)
	listBack    = prometheus.NewDesc("blockd_list_rolled_back", "1 while a list serves what it had before, and not what its file has: blockd rollback. Absent else.", []string{"list"}, nil)
	indexOwners = prometheus.NewDesc("blockd_index_owners", "Mailboxes and domains with entries of their own in the serving generation.", nil, nil)
	indexKeys   = prometheus.NewDesc("blockd_index_keys", "Distinct keys in the serving generation.", nil, nil)
	indexBytes  = prometheus.NewDesc("blockd_index_bytes", "Size of the serving generation's file.", nil, nil)
	filterAsked = prometheus.NewDesc("blockd_filter_keys_asked_total", "Keys that the filter was asked for.", nil, nil)
	filterFalse = prometheus.NewDesc("blockd_filter_false_positives_total",
		"Keys of which the filter said perhaps and the store no: each cost a read and changed no verdict.", nil, nil)
	filterRate = prometheus.NewDesc("blockd_filter_expected_false_positive_ratio",
		"Rate that the filter's size and load predict.", nil, nil)
)

// Describe is of prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{listEntries, listStale, listLeftOut, listHeld, listWaiting, listBack, indexKeys, indexOwners, indexBytes, filterAsked, filterFalse, filterRate} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.r.mu.Lock() // so that counters do not step back within a swap
	ix, bytes, past, old := c.r.live.Load(), c.r.bytes, c.r.past, c.r.status.Stale
	held, pins := c.r.status.Held, c.r.status.Pins
	c.r.mu.Unlock()
	keys, _ := ix.Counts()
	falsePositives, asked := ix.FalsePositives()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	count := entries(ix.Lists())
	leftOut := map[string]*lists.Dropped{}
	for _, row := range ix.Lists() {
		if row.Summary.Verdict != lists.Refused && row.Summary.Errors > 0 {
			if leftOut[row.Source.List] == nil {
				leftOut[row.Source.List] = &lists.Dropped{}
			}
			leftOut[row.Source.List].Gather(&row.Summary.Dropped)
		}
	}
	for list, d := range leftOut {
		for _, c := range d.Classes {
			gauge(listLeftOut, float64(c.Lines), list, string(c.Class))
		}
	}
	for _, l := range c.r.settings.Lists {
		gauge(listEntries, float64(count[l.Name]), l.Name)
		stale := 0.
		if slices.Contains(old, l.Name) {
			stale = 1
		}
		gauge(listStale, stale, l.Name)
		gauge(listHeld, float64(held[l.Name]), l.Name)
	}
	for _, p := range pins {
		if p.Proposal != nil {
			gauge(listWaiting, max(0, time.Since(p.Proposal.Waiting()).Seconds()), p.List)
		}
		if p.How != kept.Review {
			gauge(listBack, 1, p.List)
		}
	}
	gauge(indexKeys, float64(keys))
	gauge(indexOwners, float64(ix.Owners()))
	gauge(indexBytes, float64(bytes))
	gauge(filterRate, ix.FalsePositiveRate())
	counter(filterAsked, past.asked+asked)
	counter(filterFalse, past.falsePositives+falsePositives)
}
