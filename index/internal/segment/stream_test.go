package segment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
)

// stated is one entry as a test puts it into a segment.
type stated struct {
	key    string
	line   int
	scope  lists.Scope
	action lists.Action
	reason string
}

// segmentOf writes entries, which are in order of their lines, as so many workers
// might have read them.
func segmentOf(t testing.TB, rng *rand.Rand, workers int, entries []stated) *Segment {
	t.Helper()
	f := testkit.Value(os.Create(filepath.Join(t.TempDir(), "segment")))(t)
	t.Cleanup(func() { f.Close() })
	w, reasons := newWriter(f, workers), NewReasons()
	lane, left, line := 0, 0, -1
	for _, e := range entries {
		if e.line != line {
			if left--; left < 0 { // another block of lines
				lane, left = rng.IntN(workers), rng.IntN(40)
				if rng.IntN(4) == 0 && len(w.lanes[lane].buf) > 0 {
					w.lanes[lane].flush()
				}
			}
			line = e.line
		}
		said := format.Entry{Line: e.line, Scope: e.scope, Action: e.action}
		if e.reason != "" {
			number, _ := reasons.Add(e.reason, Place{Line: e.line})
			said.Reason = number + 1
		}
		w.lanes[lane].Add(e.key, said)
	}
	testkit.Must(t, w.finish([16]byte{}, Meta{Reasons: reasons}))
	return testkit.Value(read(f, [16]byte{}))(t)
}

// someEntries are on rising lines, some of them several on one.
func someEntries(t testing.TB, rng *rand.Rand, n int) (all []stated) {
	line := 1
	for range n {
		line += rng.IntN(3)
		all = append(all, stated{key: fmt.Sprintf("d%d.test", rng.IntN(3000)), line: line, scope: lists.Scope(rng.IntN(3)),
			reason: []string{"", "one", "two"}[rng.IntN(3)]})
	}
	return all
}

func drain(t testing.TB, s *stream, rng *rand.Rand) (all []seen) {
	t.Helper()
	for {
		some := s.peek(1 + rng.IntN(5000))
		if s.err != nil {
			t.Fatal(s.err)
		}
		if len(some) == 0 {
			return all
		}
		some = some[:1+rng.IntN(len(some))]
		all = append(all, some...)
		s.take(len(some))
	}
}

func TestStreamGivesEntriesInOrderOfLines(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		entries := someEntries(t, rng, rng.IntN(20_000))
		s := testkit.Value(segmentOf(t, rng, 1+rng.IntN(8), entries).stream(9))(t)
		sums := map[uint64]string{}
		got := drain(t, s, rng)
		testkit.MustEqual(t, fmt.Sprintf("seed %d: entries", seed), len(got), len(entries))
		for i, e := range entries {
			said := fmt.Sprint(e.key, e.scope, e.action, e.reason)
			if other, known := sums[got[i].sum]; got[i].line != e.line || known && other != said {
				t.Fatalf("seed %d: entry %d is of line %d, want %s of line %d", seed, i, got[i].line, said, e.line)
			}
			sums[got[i].sum] = said
		}
	}
}

// What align takes for the same is the same, in the same order, and what it says of
// lines is so; and it finds small differences small.
func TestAlign(t *testing.T) {
	race.Skip(t)
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		before := someEntries(t, rng, rng.IntN(8000))
		now := slices.Clone(before)
		edits := 0
		for range rng.IntN(6) {
			at, size := rng.IntN(len(now)+1), 1
			if rng.IntN(3) == 0 {
				size = rng.IntN(700)
			}
			edits += size
			if rng.IntN(2) == 0 {
				now = slices.Delete(now, at, min(at+size, len(now)))
			} else {
				now = slices.Insert(now, at, someEntries(t, rng, size)...)
			}
		}
		line := 0
		for i := range now { // as the lines of a file rise
			if i > 0 && rng.IntN(10) > 0 || line == 0 {
				line++
			}
			now[i].line = line
		}
		from := streamOf(t, rng, before)
		to := streamOf(t, rng, now)
		d := testkit.Value(align(t.Context(), from, to, 1<<20))(t)
		kept, left := without(t, rng, before, d.gone), without(t, rng, now, d.come)
		if len(kept) != len(left) {
			t.Fatalf("seed %d: %d entries kept, %d left", seed, len(kept), len(left))
		}
		for i, e := range kept {
			if e.sum != left[i].sum || d.lines.Line(e.line) != left[i].line {
				t.Fatalf("seed %d: entry of line %d is taken for that of line %d, and its line for %d", seed, e.line, left[i].line, d.lines.Line(e.line))
			}
		}
	}
}

func streamOf(t testing.TB, rng *rand.Rand, entries []stated) *stream {
	t.Helper()
	return testkit.Value(segmentOf(t, rng, 1, entries).stream(9))(t)
}

// without drains a stream of entries but for those at where.
func without(t testing.TB, rng *rand.Rand, entries []stated, where []int64) []seen {
	t.Helper()
	all := drain(t, streamOf(t, rng, entries), rng)
	return slices.DeleteFunc(all, func(s seen) bool { return slices.Contains(where, s.where) })
}

func TestAlignFindsSmallDifferences(t *testing.T) {
	const n = 20_000
	numbered := func(change func(i int) []string) (all []stated) {
		for i := range n {
			for _, text := range change(i) {
				all = append(all, stated{key: text, line: len(all) + 1})
			}
		}
		return all
	}
	name := func(i int) string { return fmt.Sprintf("d%d.test", i) }
	same := func(i int) []string { return []string{name(i)} }
	for _, tt := range []struct {
		name       string
		change     func(i int) []string
		gone, come int
	}{
		{"nothing", same, 0, 0},
		{"a line at the beginning", func(i int) []string {
			if i == 0 {
				return []string{"new.test", name(i)}
			}
			return same(i)
		}, 0, 1},
		{"every hundredth line is new", func(i int) []string {
			if i%100 == 0 {
				return []string{fmt.Sprintf("new%d.test", i), name(i)}
			}
			return same(i)
		}, 0, n / 100},
		{"every tenth line is another", func(i int) []string {
			if i%10 == 0 {
				return []string{fmt.Sprintf("new%d.test", i)}
			}
			return same(i)
		}, n / 10, n / 10},
		{"five thousand lines in the middle are gone", func(i int) []string {
			if i >= 7000 && i < 12_000 {
				return nil
			}
			return same(i)
		}, 5000, 0},
		{"the last line has moved to the front", func(i int) []string {
			switch i {
			case 0:
				return []string{name(n - 1), name(0)}
			case n - 1:
				return nil
			}
			return same(i)
		}, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			d, err := align(t.Context(), streamOf(t, rng, numbered(same)), streamOf(t, rng, numbered(tt.change)), n)
			if err != nil || len(d.gone) != tt.gone || len(d.come) != tt.come {
				t.Errorf("%d gone, %d come, %v, want %d and %d", len(d.gone), len(d.come), err, tt.gone, tt.come)
			}
		})
	}
}

func TestDamagedSegmentEndsAStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := segmentOf(t, rng, 2, someEntries(t, rng, 5000))
	size := m.chunks[len(m.chunks)-1].offset + m.chunks[len(m.chunks)-1].length
	for range 200 {
		at := rng.Int64N(size)
		var b [1]byte
		testkit.Value(m.f.ReadAt(b[:], at))(t)
		bent := []byte{b[0] ^ 1<<rng.IntN(8)}
		m.f.WriteAt(bent, at)
		s, err := m.stream(9)
		if err == nil {
			_, err = align(context.Background(), s, streamOf(t, rng, nil), 1<<20)
		}
		if !errors.Is(err, ErrDamaged) {
			t.Fatalf("octet %d bent: error %v", at, err)
		}
		m.f.WriteAt(b[:], at)
	}
}

func TestLineMap(t *testing.T) {
	var m LineMap
	for _, tt := range []struct {
		old, now int
		ok       bool
	}{{3, 3, true}, {5, 7, true}, {6, 8, true}, {9, 10, true}, {9, 9, false}, {12, 12, true}} {
		if ok := m.add(tt.old, tt.now); ok != tt.ok {
			t.Errorf("add(%d, %d) = %v", tt.old, tt.now, ok)
		}
	}
	for old, want := range map[int]int{1: 1, 4: 4, 5: 7, 8: 10, 9: 10, 11: 12, 12: 12, 1000: 1000} {
		testkit.Equal(t, fmt.Sprintf("line(%d)", old), m.Line(old), want)
	}
	var full LineMap
	for i := range maxLineShifts {
		if !full.add(i, 2*i+1) {
			t.Fatalf("line %d: no room", i)
		}
	}
	if full.add(maxLineShifts, 0) {
		t.Error("a map of lines grows without bound")
	}
}
