package carried

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
)

// counted is one process's share of what is counted.
type counted struct {
	*Registry
	events  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	open    prometheus.Gauge
}

func newCounted() counted {
	c := counted{NewRegistry(),
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "events_total", Help: "h"}, []string{"kind", "a"}),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "seconds", Help: "h", Buckets: []float64{1, 2, 3}}, []string{"door"}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "open", Help: "h"})}
	process := prometheus.NewCounter(prometheus.CounterOpts{Name: "process_cpu_seconds_total", Help: "h"})
	process.Inc()
	c.MustRegister(c.events, c.seconds, c.open, process)
	return c
}

// TestProcessesInARow counts the same events in one registry, and in a row of which each carries what the one before
// counted, also after it has begun itself. Both must show the same.
func TestProcessesInARow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all, now := newCounted(), newCounted()
	for range 10 {
		before := now
		now = newCounted()
		for range random.IntN(50) {
			at := now
			if random.IntN(2) == 0 {
				at = before // it still ends its sessions
			}
			kind, seconds := []string{"x", "y\n", `"z\`}[random.IntN(3)], random.Float64()*4
			at.events.WithLabelValues(kind, "é").Inc()
			all.events.WithLabelValues(kind, "é").Inc()
			at.seconds.WithLabelValues("smtp").Observe(seconds)
			all.seconds.WithLabelValues("smtp").Observe(seconds)
			if random.IntN(5) == 0 {
				carry(t, before, now)
			}
		}
		carry(t, before, now)
		now.open.Set(3)
		all.open.Set(3)
		got, want := shown(now), shown(all)
		testkit.MustEqual(t, "carried", got, want)
	}
	if err := now.Add([]byte("no metrics {")); err == nil {
		t.Error("nonsense is taken")
	}
	if got, want := shown(now), shown(all); got != want {
		t.Errorf("after nonsense:\n%s\nwant:\n%s", got, want)
	}
}

func carry(t *testing.T, from, to counted) {
	t.Helper()
	text := testkit.Value(from.Text())(t)
	testkit.Must(t, to.Add(text))
}

// shown is what /metrics shows, without the sums, whose last digits depend on the order of adding.
func shown(c counted) string {
	var b strings.Builder
	for line := range strings.Lines(testkit.Metrics(c)) {
		if !strings.HasPrefix(line, "seconds_sum") {
			b.WriteString(line)
		}
	}
	return b.String()
}
