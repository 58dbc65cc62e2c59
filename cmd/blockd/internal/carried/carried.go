// Package carried lets counters go on from one process to the next, so that what is counted does not go back at an
// upgrade.
package carried

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Registry is one of which Gather adds to its counters and histograms those of a process before. Gauges are of now, and
// what begins with "go_" or "process_" is of this process alone. It is safe for concurrent use.
type Registry struct {
	*prometheus.Registry

	mu     sync.Mutex
	before map[string]*dto.MetricFamily
}

// NewRegistry returns a registry to which nothing is added yet.
func NewRegistry() *Registry { return &Registry{Registry: prometheus.NewRegistry()} }

// own are the beginnings of names that are of one process.
var own = []string{"go_", "process_", "promhttp_"}

// Text is what another Registry's Add takes: all counters as Gather shows them.
func (r *Registry) Text() ([]byte, error) {
	families, err := r.Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, f := range families {
		if adds(f) {
			if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
				return nil, err
			}
		}
	}
	return b.Bytes(), nil
}

// adds reports whether values of a family add up over processes.
func adds(f *dto.MetricFamily) bool {
	if slices.ContainsFunc(own, func(start string) bool { return strings.HasPrefix(f.GetName(), start) }) {
		return false
	}
	return f.GetType() == dto.MetricType_COUNTER || f.GetType() == dto.MetricType_HISTOGRAM
}

// Add makes a Text what Gather adds, in place of an earlier one. After an error that one counts on.
func (r *Registry) Add(text []byte) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	before, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("counters of the process before: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = before
	return nil
}

// Gather implements prometheus.Gatherer.
func (r *Registry) Gather() ([]*dto.MetricFamily, error) {
	now, err := r.Registry.Gather()
	r.mu.Lock()
	rest := maps.Clone(r.before)
	r.mu.Unlock()
	for _, f := range now {
		if was := rest[f.GetName()]; was != nil && was.GetType() == f.GetType() && adds(f) {
			join(f, was)
		}
		delete(rest, f.GetName())
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		if adds(rest[name]) {
			now = append(now, rest[name]) // nothing of it has been counted here yet
		}
	}
	slices.SortFunc(now, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return now, err
}

// join adds the values of was to those of f, which belongs to the caller. Metrics that f lacks are taken over.
func join(f, was *dto.MetricFamily) {
	byLabels := map[string]*dto.Metric{}
	for _, m := range f.Metric {
		byLabels[labels(m)] = m
	}
	for _, w := range was.Metric {
		m := byLabels[labels(w)]
		switch {
		case m == nil:
			f.Metric = append(f.Metric, w)
		case m.Counter != nil && w.Counter != nil:
			sum := m.Counter.GetValue() + w.Counter.GetValue()
			m.Counter.Value = &sum
		case m.Histogram != nil && w.Histogram != nil:
			joinHistogram(m.Histogram, w.Histogram)
		}
	}
	slices.SortFunc(f.Metric, func(a, b *dto.Metric) int {
		return slices.CompareFunc(a.Label, b.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetValue(), b.GetValue()) })
	})
}

// joinHistogram adds the buckets of was that h has too; another version may have others.
func joinHistogram(h, was *dto.Histogram) {
	same := len(h.Bucket) == len(was.Bucket) || len(h.Bucket)+1 == len(was.Bucket) // a text has the last one, +Inf, too
	for i, b := range h.Bucket {
		same = same && b.GetUpperBound() == was.Bucket[i].GetUpperBound()
	}
	if !same {
		return
	}
	for i, b := range h.Bucket {
		n := b.GetCumulativeCount() + was.Bucket[i].GetCumulativeCount()
		b.CumulativeCount = &n
	}
	n, sum := h.GetSampleCount()+was.GetSampleCount(), h.GetSampleSum()+was.GetSampleSum()
	h.SampleCount, h.SampleSum = &n, &sum
}

// labels is what tells the metrics of one family apart.
func labels(m *dto.Metric) string {
	var b strings.Builder
	for _, l := range m.Label { // sorted by name
		fmt.Fprintf(&b, "%q=%q,", l.GetName(), l.GetValue())
	}
	return b.String()
}
