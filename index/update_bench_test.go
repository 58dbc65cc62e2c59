package index

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/mail/addr"
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
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		used += testkit.CPUTime(b) - began
		if matches, err := updated.Lookup(nil, sender(b, change[:len(change)-1]), testTime); err != nil || len(matches) != 1 {
			b.Fatal(matches, err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms/op")
}

// BenchmarkClearSender is what an overlay of the most keys costs who is in no list.
func BenchmarkClearSender(b *testing.B) {
	var text bytes.Buffer
	for n := range 1_000_000 {
		fmt.Fprintf(&text, "user%d@list%d.example.net\n", n, n%50_000)
	}
	source := plain("a", testkit.File(b, "a.txt", text.String()))
	path := filepath.Join(b.TempDir(), "x.bdx")
	file := published(b, path, []Source{source})
	for n := range maxOverlayKeys {
		fmt.Fprintf(&text, "more%d@bulk.test\n", n)
	}
	testkit.Write(b, source.Path, text.Bytes())
	updated, report, err := file.Update(b.Context(), []Source{source}, Options{Cache: path + CacheSuffix})
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d keys in %d octets", report.Keys, report.Bytes)
	var senders []addr.Addr
	for n := range 4096 {
		senders = append(senders, sender(b, fmt.Sprintf("someone%d@clear%d.example.org", n, n)))
	}
	for _, ix := range []*Index{file, updated} {
		if err := ix.Promote(b.Context()); err != nil {
			b.Fatal(err)
		}
		name := "file"
		if ix.Updated() {
			name = "overlay"
		}
		b.Run("one/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for n := range b.N {
				if m, err := ix.Lookup(nil, senders[n%len(senders)], testTime); err != nil || len(m) > 0 {
					b.Fatal(m, err)
				}
			}
		})
		b.Run("batch/"+name, func(b *testing.B) {
			b.ReportAllocs()
			var batch Batch
			for n := 0; n < b.N; n += len(senders) {
				ix.LookupBatch(&batch, senders, testTime)
			}
		})
	}
}
