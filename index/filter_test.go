package index

import (
	"bytes"
	"context"
	"errors"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"blockd/bloom"
	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
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
	testkit.AtLeast(t, "chunks of the filter", ix.filter.chunks(), 9)
	testkit.Equal(t, "Open sums: chunks of the filter", ix.filter.touched(), 0)
	testkit.MustEqual(t, "Lookup", len(testkit.Value(ix.Lookup(nil, sender(t, "x@"+manyName(7)), testTime))(t)), 1)
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
	testkit.Value(f.WriteAt(make([]byte, format.ChunkBytes), int64(s.Offset+format.ChunkBytes)))(t)
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
	testkit.IsError(t, "Verify", ix.Verify(t.Context()), ErrCorrupt)
}

// After Promote the filter needs the file no more.
func TestPromotedFilterOutlivesItsFile(t *testing.T) {
	built := indexOf(t, seeded(1), rowsNamed(1), manyDomains(50_000))
	path := built.mapping.name
	ix := opened(t, path)
	clear := sender(t, "x@clear.example")
	testkit.Must(t, ix.Promote(t.Context()))
	testkit.IsError(t, "the second Promote", ix.Promote(t.Context()), nil)
	testkit.Must(t, os.Truncate(path, 0))
	testkit.Equal(t, "a clear sender after the cut", len(testkit.Value(ix.Lookup(nil, clear, testTime))(t)), 0)
	testkit.Fails(ix.Lookup(nil, sender(t, "x@"+manyName(7)), testTime))(t, "a listed sender after the cut", ErrRead)
}

func TestPromoteEnds(t *testing.T) {
	built := indexOf(t, seeded(1), rowsNamed(1), manyDomains(50_000))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ix := opened(t, built.mapping.name)
	testkit.IsError(t, "Promote under an ended context", ix.Promote(ctx), context.Canceled)
	testkit.Equal(t, "Lookup afterwards", len(testkit.Value(ix.Lookup(nil, sender(t, "x@"+manyName(7)), testTime))(t)), 1)
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

// hostileDomains are n names of which the first evil satisfy want.
func hostileDomains(n, evil int, want func(name []byte) bool) []listed {
	entries := make([]listed, 0, n)
	var name []byte
	for i := 0; len(entries) < n; i++ {
		name = append(strconv.AppendInt(append(name[:0], 'd'), int64(i), 10), ".some.name.of.a.usual.length.test"...)
		if len(entries) < evil && !want(name) {
			continue
		}
		entries = append(entries, listed{key: addr.Key{Text: string(name), Kind: addr.Domain, Labels: 8}, scope: lists.Exact, line: i + 1})
	}
	return entries
}

func draftOfHostile(t *testing.T, o Options, h build.Hooks, entries []listed) *Draft {
	t.Helper()
	d := draftOf(t, filepath.Join(t.TempDir(), "x.bdx"), o, h, rowsNamed(1), entries)
	t.Cleanup(d.Discard)
	for _, e := range entries {
		if got, err := d.Index().lookup(nil, []addr.Key{e.key}, 0); err != nil || len(got) != 1 || got[0].Line != e.line {
			t.Fatalf("lookup(%s) = %v, %v", e.key.Text, got, err)
		}
	}
	return d
}

// Whoever knows a seed can choose a thousand names for one page of 1,700.
func TestCrowdedPageIsReseeded(t *testing.T) {
	race.Skip(t)
	o := seeded(1)
	key := bloom.Seed(o.Seed.HashKey)
	entries := hostileDomains(100_000, 1000, func(name []byte) bool { return key.Sum(name).Hi>>53 == 0 })
	d := draftOfHostile(t, o, build.Hooks{}, entries)
	testkit.Got(d.Report.Reseeds, d.Report.Hash)(t, "reseeds and hash", 1, "xxh3")
	if d.Index().file.Hash.Key == key {
		t.Error("the known key is still in use")
	}
	testkit.Got(d.Report.Keys, d.Report.Entries, d.Report.Duplicates)(t, "report", 100_000, 100_000, 0)
}

// Names that collide under every seed of XXH3 are not known; a weaker hash in
// its place has them.
func TestSeedIndependentCollisionsLeadToSipHash(t *testing.T) {
	o := seeded(2)
	weak := func(key []byte) bloom.Hash {
		if bytes.HasPrefix(key, []byte("d1")) {
			return bloom.Hash{Hi: 1, Lo: 1}
		}
		return bloom.Seed{}.Sum(key)
	}
	entries := hostileDomains(20_000, 1000, func(name []byte) bool { return name[1] == '1' })
	d := draftOfHostile(t, o, build.Hooks{Weak: weak}, entries)
	testkit.Got(d.Report.Reseeds, d.Report.Hash)(t, "reseeds and hash", 3, "siphash")
}

// A file above 4 GiB, most of which is a hole: every offset behind it, those of
// pages, tables and reasons, needs more than 32 bits.
func TestFileOver4GiB(t *testing.T) {
	const gap = 5 << 30
	path := filepath.Join(t.TempDir(), "x.bdx")
	entries := manyDomains(30_000)
	for i := range entries {
		entries[i].reason = "why"
	}
	d := draftOf(t, path, seeded(1), build.Hooks{Gap: gap / format.PageSize}, rowsNamed(1), entries)
	publish(t, d)
	if info, err := os.Stat(path); err != nil || info.Size() < gap || d.Report.Bytes != info.Size() {
		t.Fatalf("file of %d octets, %v; the report says %d", info.Size(), err, d.Report.Bytes)
	}
	ix := opened(t, path)
	testkit.Should(t, ix.Verify(t.Context()))
	for _, e := range entries {
		got, err := ix.lookup(nil, []addr.Key{e.key}, 0)
		if err != nil || len(got) != 1 || got[0].Line != e.line || got[0].Reason != "why" {
			t.Fatalf("lookup(%s) = %v, %v", e.key.Text, got, err)
		}
	}
}
