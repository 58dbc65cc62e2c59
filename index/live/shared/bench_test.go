package shared_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"blockd/index/live"
)

// BenchmarkActsElsewhere measures how long a change takes until it is acknowledged, and until it acts on another machine.
func BenchmarkActsElsewhere(b *testing.B) {
	for _, kind := range []string{"postgres", "redis"} {
		b.Run(kind, func(b *testing.B) {
			e := engineOf(b, kind)
			nodes := fleet(b, e, 3, nil)
			var acknowledged, acted []time.Duration
			for i := 0; b.Loop(); i++ {
				entry := fmt.Sprintf("x%d@bench.example", i)
				begun := time.Now()
				if _, err := nodes[0].set.Apply(block(entry, "")); err != nil {
					b.Fatal(err)
				}
				acknowledged = append(acknowledged, time.Since(begun))
				for row := (live.Row{Entry: entry, Scope: "exact", Action: "block"}); nodes[1].set.Get(&row) == nil; {
					runtime.Gosched()
				}
				acted = append(acted, time.Since(begun))
			}
			for name, all := range map[string][]time.Duration{"ack": acknowledged, "acts": acted} {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-p50-ms")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, name+"-p99-ms")
			}
		})
	}
}

func engineOf(b testing.TB, kind string) engine {
	b.Helper()
	if kind == "redis" {
		return ofRedis(b)
	}
	return ofPostgres(b)
}
