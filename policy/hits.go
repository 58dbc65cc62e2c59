package policy

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/verdict"
)

// ListHits says what one list was worth since the start: envelopes that it had
// an entry for, and clients that were refused before they named a sender.
type ListHits struct {
	List       string
	Hits       uint64    // whether or not the list decided, and in shadow mode too
	Sole       uint64    // hits that no other list had
	Overridden uint64    // hits of a block that an allow entry overruled
	Last       time.Time // of the last hit
}

// hits are the counters of all lists that ever had a hit. They are kept by name,
// so they go on when a list is compiled anew, and there are as many as the
// configuration has names.
type hits struct {
	mu     sync.RWMutex
	byList map[string]*listHits
	top    topEntries
}

type listHits struct {
	hits, sole, overridden atomic.Uint64
	last                   atomic.Int64 // Unix nanoseconds
}

// of returns the counters of a list. It allocates at the list's first hit only.
func (h *hits) of(list string) *listHits {
	h.mu.RLock()
	l := h.byList[list]
	h.mu.RUnlock()
	if l != nil {
		return l
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if l = h.byList[list]; l == nil {
		l = &listHits{}
		h.byList[list] = l
	}
	return l
}

// count counts every list that has a match in v, once, and every entry.
func (h *hits) count(v *verdict.Verdict, now time.Time) {
	sole := !slices.ContainsFunc(v.Matches, func(m index.Match) bool {
		return v.Lists[m.Row].Source.List != v.ListName(0)
	})
	for i := range v.Matches {
		list := v.ListName(i)
		h.top.count(list, v.Matches[i].Name(), v.Matches[i].Line, sole, !v.Matches[i].Action.Allows() && v.Overruled(list), now)
		if listedBefore(v, i, list) {
			continue
		}
		l := h.of(list)
		l.hits.Add(1)
		l.last.Store(now.UnixNano())
		if sole {
			l.sole.Add(1)
		}
		if v.Overruled(list) && blockedBy(v, list) {
			l.overridden.Add(1)
		}
	}
}

func listedBefore(v *verdict.Verdict, i int, list string) bool {
	for j := range i {
		if v.ListName(j) == list {
			return true
		}
	}
	return false
}

func blockedBy(v *verdict.Verdict, list string) bool {
	for i := range v.Matches {
		if !v.Matches[i].Action.Allows() && v.ListName(i) == list {
			return true
		}
	}
	return false
}

// Hits returns the counts of all lists that had a hit, in the order of their
// names.
func (h *hits) Hits() []ListHits {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := make([]ListHits, 0, len(h.byList))
	for name, l := range h.byList {
		all = append(all, ListHits{List: name, Hits: l.hits.Load(), Sole: l.sole.Load(),
			Overridden: l.overridden.Load(), Last: time.Unix(0, l.last.Load())})
	}
	slices.SortFunc(all, func(a, b ListHits) int { return cmp.Compare(a.List, b.List) })
	return all
}

// hitMetrics is the view of hits that /metrics has.
type hitMetrics struct {
	hits                          *hits
	total, sole, overridden, last *prometheus.Desc
}

func newHitMetrics(h *hits) *hitMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"list"}, nil)
	}
	return &hitMetrics{
		hits: h,
		total: desc("blockd_list_hits_total",
			"Envelopes that a list has an entry for, whether or not it decided, by list."),
		sole: desc("blockd_list_sole_hits_total",
			"Those of blockd_list_hits_total that no other list has an entry for, by list."),
		overridden: desc("blockd_list_overridden_hits_total",
			"Those of blockd_list_hits_total where an allow entry overruled the list's block, by list."),
		last: desc("blockd_list_last_hit_timestamp_seconds",
			"When a list last had an entry for an envelope, by Unix time and list."),
	}
}

// Describe implements prometheus.Collector.
func (m *hitMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.total, m.sole, m.overridden, m.last} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *hitMetrics) Collect(to chan<- prometheus.Metric) {
	for _, l := range m.hits.Hits() {
		count := func(d *prometheus.Desc, n uint64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), l.List)
		}
		count(m.total, l.Hits)
		count(m.sole, l.Sole)
		count(m.overridden, l.Overridden)
		to <- prometheus.MustNewConstMetric(m.last, prometheus.GaugeValue, float64(l.Last.UnixNano())/1e9, l.List)
	}
}
