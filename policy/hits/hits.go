// Package hits counts what each list, and each entry, was worth. The counts are kept for the next process.
package hits

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/policy/verdict"
)

// List says what one list was worth: envelopes and questions that it had
// an entry for, and clients that were refused before they named a sender.
type List struct {
	Name       string    `json:"name"`
	Hits       uint64    `json:"hits"`       // whether or not the list decided, and in shadow mode too
	Sole       uint64    `json:"sole"`       // hits that no other list had
	Overridden uint64    `json:"overridden"` // hits of a block that an allow entry overruled
	Last       time.Time `json:"last"`       // of the last hit
}

// Table has the counters of all lists that ever had a hit. They are kept by name,
// so they go on when a list is compiled anew, and there are as many as the
// configuration has names. It is safe for concurrent use.
type Table struct {
	mu      sync.RWMutex
	byList  map[string]*counters
	before  map[string]List // see Restore
	top     topEntries
	changes atomic.Uint64 // calls of Count that had a match, and of Restore
}

// NewTable returns an empty table, with its metrics in reg, which can hold those of one.
func NewTable(reg prometheus.Registerer) *Table {
	t := &Table{byList: map[string]*counters{}}
	reg.MustRegister(newMetrics(t))
	return t
}

type counters struct {
	hits, sole, overridden atomic.Uint64
	last                   atomic.Int64 // Unix nanoseconds
}

// of returns the counters of a list. It allocates at the list's first hit only.
func (t *Table) of(list string) *counters {
	t.mu.RLock()
	l := t.byList[list]
	t.mu.RUnlock()
	if l != nil {
		return l
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l = t.byList[list]; l == nil {
		l = &counters{}
		t.byList[list] = l
	}
	return l
}

// Count counts every list that has a match in v, once, and every entry.
func (t *Table) Count(v *verdict.Verdict, now time.Time) {
	sole := v.Sole()
	if len(v.Matches) > 0 {
		t.changes.Add(1)
	}
	for i := range v.Matches {
		list := v.ListName(i)
		t.top.count(list, v.Matches[i].Name(), v.Matches[i].Line, sole, !v.Matches[i].Action.Allows() && v.Overruled(list), now)
		if listedBefore(v, i, list) {
			continue
		}
		l := t.of(list)
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

// Lists returns the counts of all lists that had a hit, here or before, in the order of their
// names.
func (t *Table) Lists() []List {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := t.ownLocked()
	for i, l := range all {
		all[i] = l.plus(t.before[l.Name])
	}
	for name, l := range t.before {
		if t.byList[name] == nil {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b List) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Counted is Lists without what was before: what this process has counted.
func (t *Table) Counted() []List {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.ownLocked()
}

// ownLocked is own for one that holds mu.
func (t *Table) ownLocked() []List {
	all := make([]List, 0, len(t.byList))
	for name, l := range t.byList {
		all = append(all, List{Name: name, Hits: l.hits.Load(), Sole: l.sole.Load(),
			Overridden: l.overridden.Load(), Last: time.Unix(0, l.last.Load())})
	}
	return all
}

// metrics is the view of a table that /metrics has.
type metrics struct {
	table                         *Table
	total, sole, overridden, last *prometheus.Desc
}

func newMetrics(t *Table) *metrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"list"}, nil)
	}
	return &metrics{
		table: t,
		total: desc("blockd_list_hits_total",
			"Envelopes and questions that a list has an entry for, whether or not it decided, by list."),
		sole: desc("blockd_list_sole_hits_total",
			"Those of blockd_list_hits_total that no other list has an entry for, by list."),
		overridden: desc("blockd_list_overridden_hits_total",
			"Those of blockd_list_hits_total where an allow entry overruled the list's block, by list."),
		last: desc("blockd_list_last_hit_timestamp_seconds",
			"When a list last had an entry for an envelope or a question, by Unix time and list."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.total, m.sole, m.overridden, m.last} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, l := range m.table.Counted() {
		count := func(d *prometheus.Desc, n uint64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), l.Name)
		}
		count(m.total, l.Hits)
		count(m.sole, l.Sole)
		count(m.overridden, l.Overridden)
		to <- prometheus.MustNewConstMetric(m.last, prometheus.GaugeValue, float64(l.Last.UnixNano())/1e9, l.Name)
	}
}
