package index

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/mail/addr"
)

// An index with an overlay costs a clear sender no memory.
func TestOverlayAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	ix := changed(t)
	now := time.Now()
	clear, gone := sender(t, "x@clear.example"), sender(t, "x@gone.test")
	var b Batch
	all := []addr.Addr{clear, gone}
	ix.LookupBatch(&b, all, now)
	if n := allocations(func() {
		for _, a := range all {
			if matches, err := ix.Lookup(nil, a, now); err != nil || len(matches) > 0 {
				t.Fatal(matches, err)
			}
		}
		ix.LookupBatch(&b, all, now)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// changed is an index from which gone.test went and to which come.test came.
func changed(t testing.TB) *Index {
	t.Helper()
	source := plain("a", testkit.File(t, "a.txt", "stays.test\ngone.test\n"))
	path := filepath.Join(t.TempDir(), "x.bdx")
	ix := published(t, path, []Source{source})
	testkit.Write(t, source.Path, "stays.test\ncome.test\n")
	updated, _, err := ix.Update(t.Context(), []Source{source}, Options{Cache: path + CacheSuffix})
	testkit.Must(t, err)
	return updated
}

func TestProbeSeesTheOverlay(t *testing.T) {
	ix := changed(t)
	for text, want := range map[string][2]bool{"stays.test": {true, true}, "gone.test": {true, false}, "come.test": {true, true}} {
		p, err := ix.Probe([]addr.Key{domainKey(t, text)}, netip.Addr{})
		if err != nil || p[0].Perhaps != want[0] || p[0].Listed != want[1] {
			t.Errorf("Probe(%s) = %+v, %v", text, p, err)
		}
	}
}

// Every answer is of one generation, whatever is swapped in and collected.
func TestUpdatesUnderReaders(t *testing.T) {
	source := plain("a", filepath.Join(t.TempDir(), "a.txt"))
	write := func(n int) {
		text := fmt.Sprintf("%s# of now\none.test # %d\nmx.one.test # %d\n", strings.Repeat("more.test\n", n), n, n)
		testkit.Write(t, source.Path, text)
	}
	write(0)
	path := filepath.Join(t.TempDir(), "x.bdx")
	var live atomic.Pointer[Index]
	live.Store(published(t, path, []Source{source}))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			a := sender(t, "x@mx.one.test")
			var b Batch
			for {
				select {
				case <-stop:
					return
				default:
				}
				ix := live.Load()
				matches, err := ix.Lookup(nil, a, time.Now())
				if err != nil || len(matches) != 2 || matches[0].Reason != matches[1].Reason || matches[0].Line != matches[1].Line+1 {
					t.Errorf("Lookup = %v, %v", matches, err)
					return
				}
				ix.LookupBatch(&b, []addr.Addr{a}, time.Now())
				if batch, err := b.Matches(0); err != nil || fmt.Sprint(batch) != fmt.Sprint(matches) {
					t.Errorf("LookupBatch = %v, %v, want %v", batch, err, matches)
					return
				}
			}
		})
	}
	for n := range 60 {
		write(n % 20)
		ix := live.Load()
		updated, _, err := ix.Update(t.Context(), []Source{source}, Options{Cache: path + CacheSuffix})
		testkit.Must(t, err)
		if n%7 == 0 {
			testkit.Must(t, updated.Promote(t.Context()))
		}
		if n%20 == 19 {
			updated = published(t, path, []Source{source})
		}
		live.Store(updated)
		runtime.GC()
	}
	close(stop)
	readers.Wait()
}
