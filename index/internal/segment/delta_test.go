package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"

	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

// changedEntries are what entries may become: some go, some come, lines move, reasons change.
func changedEntries(t testing.TB, rng *rand.Rand, all []stated) (now []stated) {
	by := 0
	for i := 0; i < len(all); i++ {
		e := all[i]
		switch rng.IntN(40) {
		case 0: // a line goes
			for i+1 < len(all) && all[i+1].line == e.line {
				i++
			}
			by--
			continue
		case 1: // some come
			for range 1 + rng.IntN(5) {
				now = append(now, stated{key: fmt.Sprintf("n%d.test", rng.IntN(3000)), line: e.line + by, action: lists.Allow, reason: "three"})
				by++
			}
		case 2: // an entry of a line
			continue
		case 3:
			e.reason = "four"
		}
		e.line = max(e.line+by, 1)
		if len(now) > 0 {
			e.line = max(e.line, now[len(now)-1].line)
		}
		now = append(now, e)
	}
	return now
}

// held are the entries of a segment with all that they say, sorted.
func held(t testing.TB, s *Segment) (all []string) {
	t.Helper()
	err := s.Each(t.Context(), 1, func(_ int, c *Chunk, entries uint64) error {
		for range entries {
			key, e := c.Entry()
			if c.Bad {
				return nil
			}
			text := ""
			if e.Reason != 0 {
				text = s.Reasons.Text(e.Reason - 1)
			}
			all = append(all, fmt.Sprintf("%07d %s %v %v %s %d", e.Line, key, e.Scope, e.Action, text, e.Expiry))
		}
		return nil
	})
	testkit.Must(t, err)
	slices.Sort(all)
	return all
}

func TestDeltaMakesTheOldOfTheNew(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		old := someEntries(t, rng, rng.IntN(4000))
		now := changedEntries(t, rng, old)
		target, base := segmentOf(t, rng, 1+rng.IntN(4), old), segmentOf(t, rng, 1+rng.IntN(4), now)
		var text bytes.Buffer
		if err := WriteDelta(t.Context(), &text, base, target); err != nil {
			if errors.Is(err, ErrTooDifferent) {
				continue
			}
			t.Fatal(err)
		}
		f := tempFile(t)
		if err := apply(t, f, text.Bytes(), base, 1+rng.IntN(4)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		again := testkit.Value(OpenFile(f.Name()))(t)
		defer again.Close()
		if got, want := held(t, again), held(t, target); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d entries, want %d", seed, len(got), len(want))
		}
		testkit.Value(again.byLine())(t)
		for range 20 { // any octet that changes is noticed, or changes nothing
			bad := bytes.Clone(text.Bytes())
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			f := tempFile(t)
			if err := apply(t, f, bad, base, 1); err != nil {
				testkit.IsError(t, fmt.Sprintf("seed %d", seed), err, ErrDamaged)
				continue
			}
			s := testkit.Value(OpenFile(f.Name()))(t)
			testkit.EqualSlices(t, fmt.Sprintf("seed %d: a flipped bit makes other entries", seed), held(t, s), held(t, target))
			s.Close()
		}
	}
}

func apply(t testing.TB, f *os.File, text []byte, base *Segment, workers int) error {
	d, err := ReadDelta(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return d.Apply(t.Context(), f, base, workers)
}

func tempFile(t testing.TB) *os.File {
	t.Helper()
	f := testkit.Value(os.CreateTemp(t.TempDir(), ""))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestPackIsWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := segmentOf(t, rng, 3, someEntries(t, rng, 5000))
	var text bytes.Buffer
	testkit.Must(t, Pack(&text, s))
	f := tempFile(t)
	testkit.Must(t, Unpack(f, bytes.NewReader(text.Bytes())))
	again := testkit.Value(OpenFile(f.Name()))(t)
	defer again.Close()
	testkit.EqualSlices(t, "other entries", held(t, again), held(t, s))
	testkit.IsError(t, "half of it", Unpack(tempFile(t), bytes.NewReader(text.Bytes()[:text.Len()/2])), ErrDamaged)
}

// What differs is what two sets say.
func TestDiffIsThatOfSets(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		old := someEntries(t, rng, rng.IntN(3000))
		now := changedEntries(t, rng, old)
		if seed%3 == 0 {
			now = someEntries(t, rng, rng.IntN(3000))
		}
		files := func(all []stated) (some []*Segment, set map[string]bool) {
			set = map[string]bool{}
			for _, e := range all {
				set[fmt.Sprint(e.key, e.scope, e.action)] = true
			}
			at := rng.IntN(len(all) + 1)
			return []*Segment{segmentOf(t, rng, 2, all[:at]), segmentOf(t, rng, 2, all[at:])}, set
		}
		from, was := files(old)
		to, is := files(now)
		got := [2]map[string]bool{{}, {}}
		err := Diff(t.Context(), from, to, func(came bool, d Said, key string) error {
			side, name := 0, fmt.Sprint(key, d.Scope, d.Action)
			if came {
				side = 1
			}
			if got[side][name] {
				t.Errorf("seed %d: %s comes twice", seed, name)
			}
			got[side][name] = true
			return nil
		})
		testkit.Must(t, err)
		for name := range was {
			if got[0][name] == is[name] {
				t.Fatalf("seed %d: %s is gone: %v", seed, name, got[0][name])
			}
		}
		for name := range is {
			if got[1][name] == was[name] {
				t.Fatalf("seed %d: %s has come: %v", seed, name, got[1][name])
			}
		}
		same, err := Same(t.Context(), from, to)
		if err != nil || same != (len(old) == 0 && len(now) == 0) && same {
			t.Errorf("seed %d: the same: %v, %v", seed, same, err)
		}
		if same, err := Same(t.Context(), from, []*Segment{segmentOf(t, rng, 3, old)}); err != nil || !same {
			t.Errorf("seed %d: not the same as itself: %v, %v", seed, same, err)
		}
	}
}

// Two contents of a million entries, of which 1 % differs.
func BenchmarkDiff(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var old, now []stated
	for i := range 1_000_000 {
		e := stated{key: fmt.Sprintf("user%d.%x@mail%d.example", i, rng.Uint64(), i%977), line: i + 1}
		old = append(old, e)
		if i%100 == 0 {
			e.key = "new." + e.key
		}
		now = append(now, e)
	}
	from, to := []*Segment{segmentOf(b, rng, 2, old)}, []*Segment{segmentOf(b, rng, 2, now)}
	for b.Loop() {
		n := 0
		if err := Diff(b.Context(), from, to, func(bool, Said, string) error { n++; return nil }); err != nil || n != 20_000 {
			b.Fatal(n, err)
		}
	}
}

// FuzzDelta reads any text as a difference.
func FuzzDelta(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	old := someEntries(f, rng, 100)
	base := segmentOf(f, rng, 1, changedEntries(f, rng, old))
	var text bytes.Buffer
	testkit.Must(f, WriteDelta(f.Context(), &text, base, segmentOf(f, rng, 1, old)))
	z := testkit.Value(unpacker(&text))(f)
	var plain bytes.Buffer
	testkit.Value(plain.ReadFrom(z))(f)
	f.Add(plain.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parseDelta(data)
		if err != nil {
			testkit.IsError(t, "a damaged difference", err, ErrDamaged)
			return
		}
		path := filepath.Join(t.TempDir(), "s")
		to := testkit.Value(os.Create(path))(t)
		defer to.Close()
		if err := d.Apply(t.Context(), to, base, 1); err != nil {
			testkit.IsError(t, "a damaged difference", err, ErrDamaged)
			return
		}
		s := testkit.Value(OpenFile(path))(t)
		defer s.Close()
		if err := s.Check(t.Context()); err != nil && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}

func FuzzSegment(f *testing.F) {
	f.Add([]byte("BDXSEG\r\n"))
	rng := rand.New(rand.NewPCG(1, 2))
	s := segmentOf(f, rng, 2, someEntries(f, rng, 100))
	if data, err := os.ReadFile(s.f.Name()); err == nil {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < tailSize {
			return
		}
		// With right sums, or none would get further.
		data, tail := bytes.Clone(data), len(data)-tailSize
		le := binary.LittleEndian
		var id [16]byte
		if offset := le.Uint64(data[tail+8:]); offset <= uint64(tail) {
			le.PutUint64(data[tail+24:], xxh3.Hash(data[offset:tail]))
			copy(id[:], data[offset:tail])
		}
		file := testkit.Value(os.Create(filepath.Join(t.TempDir(), "s")))(t)
		defer file.Close()
		testkit.Value(file.Write(data))(t)
		m, err := read(file, id)
		if err != nil {
			testkit.IsError(t, "a damaged difference", err, ErrDamaged)
			return
		}
		again := Meta{}
		c := format.Cursor{Rest: m.append(nil)}
		if !again.decode(&c) || fmt.Sprint(again.Summary) != fmt.Sprint(m.Summary) || len(again.Tests) != len(m.Tests) {
			t.Errorf("%+v became %+v", m, again)
		}
		for i, chunk := range m.chunks {
			m.chunks[i].sum = xxh3.Hash(data[chunk.offset:][:chunk.length])
		}
		// Nobody looks at entries again before they are in an index.
		err = m.Each(t.Context(), 1, func(_ int, c *Chunk, entries uint64) error {
			for range entries {
				key, e := c.Entry()
				if !c.Bad && (len(key) == 0 || len(key) > format.MaxStored || e.Line < 0 || e.Action > lists.AllowIfAuth || int(e.Reason) > m.Reasons.Len()) {
					t.Errorf("entry %+v of %q", e, key)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}

// The senders of self-tests go through a segment as text.
func TestSegmentKeepsSelfTests(t *testing.T) {
	for _, text := range []string{"<>", "x@bulk.test", `"a b"@bulk.test`, "x@[198.51.100.23]", "root"} {
		a := testkit.Value(addr.Parse(text))(t)
		testkit.Equal(t, fmt.Sprintf("%s becomes", text), testkit.Value(addr.Parse(a.String()))(t), a)
	}
}
