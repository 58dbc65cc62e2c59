package live

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/mail/addr"
)

// BenchmarkLookup is what a clear sender costs, index and live entries together, over
// an index of a million addresses: without a set, with 100,000 entries that the index
// has taken in, and with as many that it has not.
func BenchmarkLookup(b *testing.B) {
	var text strings.Builder
	for i := range 1_000_000 {
		fmt.Fprintf(&text, "someone%d@listed%d.example\n", i, i%5000)
	}
	base := indexes.Source(b, "l", text.String())
	senders := make([]addr.Addr, 4096)
	for i := range senders {
		senders[i] = sender(b, fmt.Sprintf("person%d@mail.company%d.example", i, i%700))
	}
	now := time.Now()
	run := func(b *testing.B, set *Set, ix *index.Index) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			s := senders[i%len(senders)]
			matches, err := ix.Lookup(nil, s, now)
			testkit.Must(b, err)
			if matches, _ = set.Amend(matches, ix, Question{Sender: s}, now); len(matches) > 0 {
				b.Fatal("listed")
			}
		}
	}
	plain := indexes.Build(b, base)
	b.Run("without", func(b *testing.B) { run(b, nil, plain) })
	for _, kind := range []struct{ name, format string }{{"addresses", "spam%d@bulk.example"}, {"names", "bulk%d.example"}} {
		set := open(b, Settings{})
		set.Served(plain)
		b.Run("none/"+kind.name, func(b *testing.B) { run(b, set, plain) })
		fill(b, set, kind.format, 100_000)
		b.Run("newer/"+kind.name, func(b *testing.B) { run(b, set, plain) })
		if _, err := set.Fold(b.Context()); err != nil {
			b.Fatal(err)
		}
		ix := indexes.Build(b, base, folded(set.folder))
		set.Served(ix)
		b.Run("folded/"+kind.name, func(b *testing.B) { run(b, set, ix) })
		b.Run("folded-alone/"+kind.name, func(b *testing.B) { run(b, nil, ix) })
	}
}

func fill(b *testing.B, set *Set, format string, n int) {
	b.Helper()
	var changes []Change
	for i := range n {
		if changes = append(changes, Change{Entry: fmt.Sprintf(format, i), Why: "from a test"}); len(changes) == 1000 {
			apply(b, set, changes...)
			changes = nil
		}
	}
	apply(b, set, changes...)
}

// BenchmarkOpen is what entries cost a start, with a journal that has not been folded for a thousand changes, and
// the memory that they take then: heap, and what the kernel counts as anonymous.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{100_000, 200_000, MaxEntries} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set := open(b, Settings{})
			fill(b, set, "spam%d@bulk.example", n-1000)
			testkit.Must(b, set.Tidy())
			fill(b, set, "tail%d@bulk.example", 1000)
			set.Close()
			folder := set.folder
			set = nil
			heap, anonymous := memory(b)
			for b.Loop() {
				seen, err := Read(folder)
				if err != nil || seen.Len() != n {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			seen, err := Read(folder)
			testkit.Must(b, err)
			heapNow, anonymousNow := memory(b)
			b.ReportMetric(float64(heapNow-heap)/float64(n), "heap-B/entry")
			b.ReportMetric(float64(anonymousNow-anonymous)/float64(n), "anonymous-B/entry")
			runtime.KeepAlive(seen)
		})
	}
}

// memory returns the heap in use and the anonymous memory of the process, in octets.
func memory(b *testing.B) (heap, anonymous int64) {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	_, after, _ := strings.Cut(string(status), "RssAnon:")
	fmt.Sscan(after, &anonymous)
	return int64(m.HeapAlloc), anonymous << 10
}

// BenchmarkFullSet is what a set of a million entries costs while it is used: a change, a scrape of its
// gauge, and with the largest journal that it keeps, its memory.
func BenchmarkFullSet(b *testing.B) {
	heap, anonymous := memory(b)
	set := open(b, Settings{})
	fill(b, set, "spam%d@bulk.example", MaxEntries)
	begun := time.Now()
	testkit.Must(b, set.Tidy())
	b.Logf("a snapshot of %d entries: %v", set.Len(), time.Since(begun))
	for i := range MaxEntries/partOfBase - 1000 {
		if i%1000 == 0 {
			var changes []Change
			for j := range 1000 {
				changes = append(changes, Change{Entry: fmt.Sprintf("spam%d@bulk.example", i+j), Why: "again"})
			}
			apply(b, set, changes...)
		}
	}
	heapNow, anonymousNow := memory(b)
	b.Run("change", func(b *testing.B) {
		i := 0
		for b.Loop() {
			apply(b, set, Change{Entry: "spam7@bulk.example", Why: fmt.Sprint(i)})
			i++
		}
	})
	b.Run("gauge", func(b *testing.B) {
		for b.Loop() {
			set.InForce()
		}
		b.ReportMetric(float64(heapNow-heap)/MaxEntries, "heap-B/entry")
		b.ReportMetric(float64(anonymousNow-anonymous)/MaxEntries, "anonymous-B/entry")
	})
	b.Run("sweep", func(b *testing.B) {
		for b.Loop() {
			testkit.Must(b, set.sweep(time.Now()))
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			for range set.All() {
			}
		}
	})
}

// BenchmarkWriters is how many acknowledged changes a second one writer and eight at once get,
// with the time that one of them waits.
func BenchmarkWriters(b *testing.B) {
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			set := open(b, Settings{})
			each := max(b.N/writers, 1)
			waits := make([]time.Duration, writers*each)
			var all sync.WaitGroup
			b.ResetTimer()
			for w := range writers {
				all.Go(func() {
					for i := range each {
						begun := time.Now()
						if _, err := set.Apply(Change{Entry: fmt.Sprintf("new%d@w%d.example", i%5000, w), Why: fmt.Sprint(i)}); err != nil {
							b.Error(err)
							return
						}
						waits[w*each+i] = time.Since(begun)
					}
				})
			}
			all.Wait()
			b.StopTimer()
			slices.Sort(waits)
			b.ReportMetric(float64(len(waits))/b.Elapsed().Seconds(), "changes/s")
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkSearch is a page of 100 of 100,000 entries in a snapshot: by number, in another order, and
// by a text that few have.
func BenchmarkSearch(b *testing.B) {
	set := open(b, Settings{})
	fill(b, set, "someone%d@bulk.example", 100_000)
	testkit.Must(b, set.rewriteNow())
	for name, q := range map[string]Query{"newest": {}, "entry": {Order: ByEntry}, "expires": {Order: ByEnd}, "text": {Text: "someone77777"}, "none": {Text: "@nowhere."}, "punctuation": {Text: "@@"}} {
		q.Limit = 100
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := set.Search(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
