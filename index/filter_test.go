package index

import (
	"context"
	"errors"
	"math/bits"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/mail/addr"
)

func (s *liveFilter) touched() (n int) {
	for i := range s.good {
		n += bits.OnesCount64(atomic.LoadUint64(&s.good[i]))
	}
	return n
}

// The time to the first answer must not grow with the filter.
func TestFirstAnswerReadsNoMoreThanItNeeds(t *testing.T) {
	built := indexOf(t, seeded(1), rowsNamed(1), manyDomains(400_000))
	ix := opened(t, built.mapping.name)
	if n := ix.filter.chunks(); n < 9 {
		t.Fatalf("a filter of %d chunks proves nothing", n)
	}
	if n := ix.filter.touched(); n != 0 {
		t.Errorf("Open sums %d chunks of the filter, want 0", n)
	}
	if got, err := ix.Lookup(nil, sender(t, "x@"+manyName(7)), testTime); err != nil || len(got) != 1 {
		t.Fatalf("Lookup = %v, %v", got, err)
	}
	if n := ix.filter.touched(); n != 1 { // one key has a kind that is listed
		t.Errorf("the first answer sums %d chunks of the filter, want 1", n)
	}
}

// Every bit that the file lost would be a listed sender let through, so a chunk
// is not believed before it is summed; the senders of other chunks are answered.
func TestDamagedFilterIsSeenAtFirstTouch(t *testing.T) {
	const n = 200_000
	built := indexOf(t, seeded(1), rowsNamed(1), manyDomains(n))
	path, s := built.mapping.name, built.file.Sections[format.SecFilter]
	f := testkit.Value(os.OpenFile(path, os.O_RDWR, 0))(t)
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, format.ChunkBytes), int64(s.Offset+format.ChunkBytes)); err != nil {
		t.Fatal(err)
	}
	ix := opened(t, path)
	ask := func(when string) {
		t.Helper()
		good, failed := 0, 0
		senders := make([]addr.Addr, 2000)
		for i := range senders {
			senders[i] = sender(t, "x@"+manyName(i*97))
			got, err := ix.Lookup(nil, senders[i], testTime)
			switch {
			case err == nil && len(got) == 1:
				good++
			case errors.Is(err, ErrRead) && errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), path) && len(got) == 0:
				failed++
			default:
				t.Fatalf("%s: Lookup(%s) = %v, %v", when, senders[i], got, err)
			}
		}
		if good < 1000 || failed < 100 {
			t.Errorf("%s: %d answers and %d errors, with one chunk in five damaged", when, good, failed)
		}
		var b Batch
		sameAsLookup(t, when, ix, &b, senders)
	}
	ask("before Promote")
	if err := ix.Promote(t.Context()); !errors.Is(err, ErrRead) || !errors.Is(err, ErrCorrupt) {
		t.Errorf("Promote = %v, want ErrRead and ErrCorrupt", err)
	}
	ask("after Promote")
	if err := ix.Verify(t.Context()); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Verify = %v, want ErrCorrupt", err)
	}
}

// After Promote the filter needs the file no more.
func TestPromotedFilterOutlivesItsFile(t *testing.T) {
	built := indexOf(t, seeded(1), rowsNamed(1), manyDomains(50_000))
	path := built.mapping.name
	ix := opened(t, path)
	clear := sender(t, "x@clear.example")
	testkit.Must(t, ix.Promote(t.Context()))
	if err := ix.Promote(t.Context()); err != nil {
		t.Errorf("the second Promote = %v", err)
	}
	testkit.Must(t, os.Truncate(path, 0))
	if got, err := ix.Lookup(nil, clear, testTime); err != nil || len(got) > 0 {
		t.Errorf("a clear sender after the cut: %v, %v", got, err)
	}
	if _, err := ix.Lookup(nil, sender(t, "x@"+manyName(7)), testTime); !errors.Is(err, ErrRead) {
		t.Errorf("a listed sender after the cut: %v, want ErrRead", err)
	}
}

func TestPromoteEnds(t *testing.T) {
	built := indexOf(t, seeded(1), rowsNamed(1), manyDomains(50_000))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ix := opened(t, built.mapping.name)
	if err := ix.Promote(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Promote under an ended context = %v", err)
	}
	if got, err := ix.Lookup(nil, sender(t, "x@"+manyName(7)), testTime); err != nil || len(got) != 1 {
		t.Errorf("Lookup afterwards = %v, %v", got, err)
	}
	testkit.Must(t, os.Truncate(ix.mapping.name, format.PageSize))
	if err := ix.Promote(t.Context()); !errors.Is(err, ErrRead) || !strings.Contains(err.Error(), "offset") {
		t.Errorf("Promote of a file that was cut off = %v, want ErrRead with an offset", err)
	}
	if _, err := ix.Lookup(nil, sender(t, "x@clear.example"), testTime); err != nil && !errors.Is(err, ErrRead) {
		t.Errorf("Lookup of a filter that was cut off = %v", err)
	}
}

func TestMeasuredRateAgreesWithFormula(t *testing.T) {
	ix := indexOf(t, seeded(1), rowsNamed(1), manyDomains(50_000))
	got, err := ix.SampleFalsePositives(1_000_000)
	if want := ix.FalsePositiveRate(); err != nil || got < 0.9*want || got > 1.1*want {
		t.Errorf("SampleFalsePositives = %v, %v, want about %v", got, err, want)
	}
}
