package index

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// BenchmarkUpdate is the time from a changed line in one of ten lists of a million
// addresses to an index that knows it.
func BenchmarkUpdate(b *testing.B) {
	folder := b.TempDir()
	var sources []Source
	for i := range 10 {
		var text bytes.Buffer
		for n := range 1_000_000 {
			fmt.Fprintf(&text, "user%d@list%d-%d.example.net\n", n*7919%1_000_003, i, n%50_000)
		}
		name := fmt.Sprintf("list%d", i)
		path := testkit.Write(b, filepath.Join(folder, name), text.Bytes())
		sources = append(sources, plain(name, path))
	}
	old(b, sources)
	path := filepath.Join(folder, "x.bdx")
	ix := published(b, path, sources)
	last := sources[9].Path
	text := testkit.Read(b, last)
	var used time.Duration
	b.ResetTimer()
	for n := range b.N {
		b.StopTimer()
		change := fmt.Sprintf("changed%d@bulk.test\n", n)
		at := bytes.IndexByte(text[len(text)/2:], '\n') + 1 + len(text)/2
		edited := append(append(append([]byte(nil), text[:at]...), change...), text[at:]...)
		testkit.Write(b, last, edited)
		began := testkit.CPUTime(b)
		b.StartTimer()
		updated, _, err := ix.Update(b.Context(), sources, Options{Cache: path + CacheSuffix})
		testkit.Must(b, err)
		b.StopTimer()
		used += testkit.CPUTime(b) - began
		if matches, err := updated.Lookup(nil, sender(b, change[:len(change)-1]), testTime); err != nil || len(matches) != 1 {
			b.Fatal(matches, err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms/op")
}
