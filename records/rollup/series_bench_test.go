package rollup

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkSeries: a year of a full file.
func BenchmarkSeries(b *testing.B) {
	table, now := full()
	b.ReportMetric(float64(table.kept.octets)/1e6, "MB")
	for b.Loop() {
		if _, err := table.Series(Query{By: "list", Span: "365d"}, now); err != nil {
			b.Fatal(err)
		}
	}
}

// full is a Table with as much as it may have, and a time at its end.
func full() (*Table, time.Time) {
	table, chance := New("", nil), rand.New(rand.NewPCG(1, 2))
	at := int64(0)
	for ; table.kept.octets < maxKept-4096; at += 60 {
		counts := map[cell]uint64{}
		for i := range 40 {
			counts[cell{byList, fmt.Sprint("list", i), "refuse"}] = chance.Uint64N(2000)
		}
		text, _ := table.kept.text(counts)
		table.kept.add(bin{at, true, text})
	}
	table.kept.since, table.loaded = 1, true
	return table, time.Unix(at*60, 0)
}
