package filter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"blockd/internal/testkit"
)

var written = time.Unix(1_800_000_000, 0)

func newSeen(t testing.TB, set SeenSettings) *Seen {
	t.Helper()
	return testkit.Value(NewSeen(set))(t)
}

func seenOctets(t testing.TB, s *Seen) []byte {
	t.Helper()
	var out bytes.Buffer
	testkit.Must(t, s.Write(&out, written))
	return out.Bytes()
}

func readSeen(data []byte, set SeenSettings, now time.Time) (*Seen, error) {
	return ReadSeen(bytes.NewReader(data), int64(len(data)), set, now)
}

// TestSeenAgainstTwoSets holds a set to a model of two exact ones, through changes of roles by fill and
// by age, and through files. Nothing that the model knows is new to it.
func TestSeenAgainstTwoSets(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	set := SeenSettings{Octets: 8 << 10, MaxAge: 24 * time.Hour}
	s := newSeen(t, set)
	young, old := map[string]bool{}, map[string]bool{}
	var full, aged, wrong, asked uint64
	follow := func() { // the model changes its roles where the set has
		f, a := s.Turns()
		for ; full < f; full++ {
			young, old = map[string]bool{}, young
		}
		for ; aged < a; aged++ {
			young, old = map[string]bool{}, young
		}
	}
	var wantAge time.Duration
	for step := range 60_000 {
		switch random.IntN(1000) {
		case 0:
			d := time.Duration(random.IntN(14)) * time.Hour
			s.Advance(d)
			if wantAge += d; wantAge >= set.MaxAge {
				wantAge = 0
				if _, a := s.Turns(); a != aged+1 {
					t.Fatalf("step %d: a half of %v was not dropped", step, set.MaxAge)
				}
			}
			follow()
		case 1:
			f, a := s.Turns()
			again := testkit.Value(readSeen(seenOctets(t, s), set, written))(t)
			again.full.Store(f)
			again.aged.Store(a)
			s = again
		default:
			key := fmt.Sprintf("%d.example", random.IntN(12_000))
			known := young[key] || old[key]
			if add := random.IntN(3) > 0; add {
				isNew := s.AddIfAbsent(key)
				if isNew && known {
					t.Fatalf("step %d: %s is new, and has come before", step, key)
				}
				young[key] = true
				if !known {
					asked++
					if !isNew {
						wrong++
					}
				}
			} else {
				if has := s.Known(key); !has && known {
					t.Fatalf("step %d: %s is not known, and has come before", step, key)
				}
				if known {
					young[key] = true
				}
			}
			before := full
			if follow(); full > before {
				wantAge = 0
			}
			if fill := s.Fill(); fill >= 0.5 {
				t.Fatalf("step %d: filled to %g", step, fill)
			}
		}
	}
	if full < 3 || aged < 3 {
		t.Errorf("%d halves were dropped as full, %d as old", full, aged)
	}
	if rate := float64(wrong) / float64(asked); rate > 0.03 {
		t.Errorf("%g of the new keys seemed to be there", rate)
	}
}

// TestSeenIsNeverFullNorEmpty puts in many times what fits: what came last is known, and what never
// came is new.
func TestSeenIsNeverFullNorEmpty(t *testing.T) {
	s := newSeen(t, SeenSettings{Octets: 32 << 10})
	const near = 9_000 // keys that a half of 16 KiB holds at least
	for i := range 200_000 {
		s.AddIfAbsent(fmt.Sprint(i))
		if i >= near && i%10_000 == 0 {
			for back := range near {
				if !s.Known(fmt.Sprint(i - back)) {
					t.Fatalf("after %d keys: the one %d before is forgotten", i, back)
				}
			}
		}
	}
	wrong := 0
	for i := range 20_000 {
		if !s.AddIfAbsent(fmt.Sprint("new ", i)) {
			wrong++
		}
	}
	if rate := float64(wrong) / 20_000; rate > 0.03 {
		t.Errorf("%g of new keys seem to be there", rate)
	}
}

// TestSeenAndTheClock jumps between two runs. A clock that was set back drops nothing; one that is years
// ahead costs one half, and not both.
func TestSeenAndTheClock(t *testing.T) {
	set := SeenSettings{Octets: 8 << 10, MaxAge: 30 * 24 * time.Hour}
	s := newSeen(t, set)
	s.AddIfAbsent("old.example")
	s.Advance(set.MaxAge)
	s.AddIfAbsent("young.example")
	data := seenOctets(t, s)
	for _, c := range []struct {
		now        time.Time
		old, young bool
	}{
		{written, true, true},
		{written.Add(29 * 24 * time.Hour), true, true},
		{written.Add(31 * 24 * time.Hour), false, true},
		{written.AddDate(50, 0, 0), false, true},
		{time.Unix(1<<60, 0), false, true},
		{time.Unix(0, 0), true, true},
		{time.Unix(-1<<60, 0), true, true},
	} {
		s := testkit.Value(readSeen(data, set, c.now))(t)
		if old, young := s.old.has("old.example"), s.Known("young.example"); old != c.old || young != c.young {
			t.Errorf("at %v: old %v, young %v", c.now, old, young)
		}
		s.Advance(-time.Hour)
		if !s.Known("young.example") {
			t.Errorf("at %v: forgotten as time went back", c.now)
		}
	}
}

// TestSeenInAnotherSize: what came last stays, the new keys have the new size.
func TestSeenInAnotherSize(t *testing.T) {
	s := newSeen(t, SeenSettings{Octets: 8 << 10})
	s.AddIfAbsent("a.example")
	data := seenOctets(t, s)
	for _, octets := range []int64{MinSeen, 4 << 10, 64 << 10, 0} {
		s := testkit.Value(readSeen(data, SeenSettings{Octets: octets}, written))(t)
		if !s.Known("a.example") || s.AddIfAbsent("a.example") {
			t.Errorf("%d octets: forgotten", octets)
		}
		want := octets / 2
		if octets == 0 { // the file's own
			want = 4 << 10
		}
		testkit.Equal(t, fmt.Sprintf("%d octets: the young half has", octets), int64(len(s.young.words))*8, want)
	}
}

// TestSeenDamaged: each truncation, each octet more, and each flipped bit of a small file is an error
// that says what is wrong.
func TestSeenDamaged(t *testing.T) {
	set := SeenSettings{Octets: 4 * MinSeen, MaxAge: time.Hour}
	s := newSeen(t, set)
	s.AddIfAbsent("a.example")
	whole := seenOctets(t, s)
	fails := func(what string, data []byte, size int64) {
		t.Helper()
		_, err := ReadSeen(bytes.NewReader(data), size, set, written)
		if !errors.Is(err, ErrForeignSeen) && !errors.Is(err, ErrTornSeen) && !errors.Is(err, ErrNewerSeen) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range whole {
		fails(fmt.Sprintf("%d octets", n), whole[:n], int64(n))
		fails(fmt.Sprintf("%d octets of more", n), whole[:n], int64(len(whole)))
	}
	fails("an octet more", append(bytes.Clone(whole), 0), int64(len(whole)+1))
	for i := range whole {
		for bit := range 8 {
			damaged := bytes.Clone(whole)
			damaged[i] ^= 1 << bit
			fails(fmt.Sprintf("octet %d, bit %d", i, bit), damaged, int64(len(damaged)))
		}
	}
	testkit.Fails(ReadSeen(&failing{bytes.NewReader(whole[:70])}, int64(len(whole)), set, written))(t, "of a disk that fails", errDisk)
	full := newSeen(t, set)
	for i := range full.young.words {
		full.young.words[i] = ^uint64(0)
	}
	fails("a half with all bits set", seenOctets(t, full), int64(len(whole)))
}

var errDisk = errors.New("input/output error")

// failing is a disk that reads, and then does not.
type failing struct{ io.Reader }

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = errDisk
	}
	return n, err
}

// TestSeenFailedWrite leaves the set changed, so that it is written again.
func TestSeenFailedWrite(t *testing.T) {
	s := newSeen(t, SeenSettings{Octets: MinSeen})
	s.AddIfAbsent("a.example")
	if err := s.Write(full{}, written); err == nil || !s.Changed() {
		t.Errorf("%v, changed %v", err, s.Changed())
	}
	seenOctets(t, s)
	if s.Changed() {
		t.Error("changed after it was written")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errDisk }

// TestSeenAtOnce: goroutines add, ask, write and advance at once. What each has added, it knows.
func TestSeenAtOnce(t *testing.T) {
	s := newSeen(t, SeenSettings{Octets: 160 << 10}) // 80,000 keys fill one half, and not two
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 20_000 {
				key := fmt.Sprint(g, " ", i)
				if s.AddIfAbsent(key); !s.Known(key) {
					t.Errorf("%s was not there at once", key)
					return
				}
			}
		})
	}
	all.Go(func() {
		for range 20 {
			var out bytes.Buffer
			testkit.Should(t, s.Write(&out, written))
			if _, err := readSeen(out.Bytes(), SeenSettings{Octets: 64 << 10}, written); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	if full, _ := s.Turns(); full == 0 {
		t.Error("no half was full")
	}
}

func TestSeenSettings(t *testing.T) {
	for _, set := range []SeenSettings{{Octets: -1}, {Octets: MinSeen - 1}, {Octets: MaxSeen + 1}, {Octets: MinSeen, RotateAt: 1},
		{Octets: MinSeen, RotateAt: -1}, {Octets: MinSeen, MaxAge: -1}} {
		if _, err := NewSeen(set); err == nil {
			t.Errorf("%+v was taken", set)
		}
		if _, err := readSeen(nil, set, written); err == nil {
			t.Errorf("%+v was taken for a file", set)
		}
	}
}

func TestSeenAllocatesNothing(t *testing.T) {
	s := newSeen(t, SeenSettings{Octets: 64 << 10})
	s.AddIfAbsent("b.example")
	if n := testing.AllocsPerRun(100, func() {
		s.Known("a.example")
		s.AddIfAbsent("b.example")
	}); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

// FuzzReadSeen gives any file to the reader, as it is and with checksums that agree. What it takes
// answers, and is read again.
func FuzzReadSeen(f *testing.F) {
	set := SeenSettings{Octets: MinSeen, MaxAge: time.Hour}
	s := newSeen(f, set)
	s.AddIfAbsent("a.example")
	f.Add(seenOctets(f, s))
	f.Fuzz(func(t *testing.T, data []byte) {
		readAny(t, data, set)
		if len(data) >= seenHead+seenTail {
			binary.LittleEndian.PutUint32(data[seenHead-4:], crc32.Checksum(data[:seenHead-4], castagnoli))
			body := data[:len(data)-seenTail]
			binary.LittleEndian.PutUint32(data[len(body):], crc32.Checksum(body, castagnoli))
			readAny(t, data, set)
		}
	})
}

func readAny(t *testing.T, data []byte, set SeenSettings) {
	got, err := readSeen(data, set, written)
	if err != nil {
		return
	}
	if got.AddIfAbsent("b.example"); !got.Known("b.example") {
		t.Fatal("a key is not there at once")
	}
	got.Advance(time.Minute)
	testkit.Value(readSeen(seenOctets(t, got), set, written))(t)
}

func BenchmarkSeen(b *testing.B) {
	s := newSeen(b, SeenSettings{Octets: 300_000_000})
	var keys [4096]string
	for i := range keys {
		keys[i] = fmt.Sprint(i, ".example")
	}
	for i := 0; b.Loop(); i++ {
		s.AddIfAbsent(keys[i%len(keys)])
	}
}

func TestSizes(t *testing.T) {
	for _, tt := range []struct {
		n      uint64
		p      float64
		bits   uint64
		hashes int
	}{
		{100_000, 0.01, 958_506, 7},
		{10_000_000, 0.001, 143_775_876, 10},
		{0, 0.5, 2, 1},
	} {
		bits, hashes := ClassicSize(tt.n, tt.p)
		if bits != tt.bits || hashes != tt.hashes {
			t.Errorf("%d at %g: %d bits, %d hashes; want %d, %d", tt.n, tt.p, bits, hashes, tt.bits, tt.hashes)
		}
		if have := ClassicRate(tt.n, bits, hashes); tt.n > 0 && math.Abs(have/tt.p-1) > 0.01 {
			t.Errorf("%d in %d bits: %g, want %g", tt.n, bits, have, tt.p)
		}
	}
}

// The sizes are those of NewBinaryFuse of FastFilter/xorfilter.
func TestFuse8Bits(t *testing.T) {
	for n, octets := range map[uint64]uint64{
		1:        12,
		2:        12,
		3:        24,
		10:       48,
		100:      192,
		1000:     1408,
		12345:    15360,
		100000:   118784,
		1000000:  1130496,
		10000000: 11272192,
	} {
		if have := Fuse8Bits(n); have != octets*8 {
			t.Errorf("%d keys: %d octets, want %d", n, have/8, octets)
		}
	}
}
