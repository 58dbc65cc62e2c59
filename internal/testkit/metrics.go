package testkit

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Metrics is the text that /metrics has of g.
func Metrics(g prometheus.Gatherer) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// Samples are the values that a counter or a gauge has: all of them, or those whose labels
// have each of these values.
func Samples(t testing.TB, g prometheus.Gatherer, name string, labels ...string) (all []float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			other := func(label string) bool {
				return !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label })
			}
			if f.GetName() == name && !slices.ContainsFunc(labels, other) {
				all = append(all, m.GetCounter().GetValue()+m.GetGauge().GetValue())
			}
		}
	}
	return all
}
