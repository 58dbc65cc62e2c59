package bloom

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

var testSeed = Seed{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// numbered is the n-th of endless test keys, 20 octets.
func numbered(n uint64) [20]byte {
	key := [20]byte{19: 'k'}
	binary.LittleEndian.PutUint64(key[:], n)
	return key
}

// hashes are both hashes under one name each.
var hashes = map[string]func([]byte) Hash{"xxh3": testSeed.Sum, "siphash": testSeed.SumSip}

// eachBatch calls f with the hashes of keys from to to-1, a batch at a time.
func eachBatch(sum func([]byte) Hash, from, to uint64, f func([]Hash)) {
	var batch [BatchSize]Hash
	for i := from; i < to; {
		n := 0
		for ; n < BatchSize && i < to; n, i = n+1, i+1 {
			key := numbered(i)
			batch[n] = sum(key[:])
		}
		f(batch[:n])
	}
}

func TestEveryKeyIsPerhapsThere(t *testing.T) {
	sizes := []uint64{0, 1, 2, 31, 32, 33, 1000, 100_000}
	if !testing.Short() && !race.Enabled {
		sizes = append(sizes, 3_000_000)
	}
	for name, sum := range hashes {
		for _, n := range sizes {
			for _, bits := range []float64{8, 12, 20} {
				b := NewBuilder(n, bits)
				eachBatch(sum, 0, n, b.AddBatch)
				f := b.Filter()
				eachBatch(sum, 0, n, func(hs []Hash) {
					if got, want := f.HasBatch(hs), uint32(1<<len(hs)-1); got != want {
						t.Fatalf("%s, %d keys, %v bits: HasBatch of keys that are there = %b", name, n, bits, got)
					}
				})
			}
		}
	}
}

func TestBatchAgreesWithSingleKeys(t *testing.T) {
	for n := range uint64(200) {
		one, many := NewBuilder(n, 8), NewBuilder(n, 8)
		eachBatch(testSeed.Sum, 0, n, func(hs []Hash) {
			many.AddBatch(hs)
			for _, h := range hs {
				one.Add(h)
			}
		})
		f, g := one.Filter(), many.Filter()
		for i := range f.blocks {
			if f.blocks[i] != g.blocks[i] {
				t.Fatalf("%d keys: Add and AddBatch differ in block %d", n, i)
			}
		}
		for size := range uint64(BatchSize + 1) {
			eachBatch(testSeed.Sum, n/2, n/2+size, func(hs []Hash) {
				got := f.HasBatch(hs)
				for i, h := range hs {
					if f.Has(h) != (got>>i&1 == 1) {
						t.Fatalf("%d keys: Has and bit %d of HasBatch differ", n, i)
					}
				}
				if len(hs) < BatchSize && got>>len(hs) != 0 {
					t.Fatalf("HasBatch of %d keys sets bits above them: %b", len(hs), got)
				}
			})
		}
	}
}

// The bits of a file must mean the same for ever, so here they are written by
// hand: block, lane and bit, straight from docs/index-format.md.
func TestLayoutIsTheFormats(t *testing.T) {
	b := NewBuilder(1000, 12)
	blocks := uint64(len(b.blocks))
	want := make([]byte, blocks*BlockBytes)
	saltText := []uint32{0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31}
	for i := range uint64(1000) {
		key := numbered(i)
		h := testSeed.Sum(key[:])
		b.Add(h)
		// floor(Lo*blocks / 2^64), without a 128-bit product: blocks is small.
		at := (h.Lo>>32*blocks + h.Lo<<32>>32*blocks>>32) >> 32
		for lane, salt := range saltText {
			bit := uint32(h.Lo) * salt / (1 << 27)
			want[int(at)*32+lane*4+int(bit/8)] |= 1 << (bit % 8)
		}
	}
	f := b.Filter()
	var got bytes.Buffer
	if n, err := f.WriteTo(&got); err != nil || n != int64(len(want)) {
		t.Fatalf("WriteTo = %d, %v", n, err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Fatal("the written bits are not those of the specification")
	}
}

func TestPlaceAtAnySize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, blocks := range []uint64{1, 2, 1 << 16, 1 << 31, 1<<32 + 1, 1 << 60} {
		if first, last := place(Hash{}, blocks), place(Hash{Lo: math.MaxUint64}, blocks); first != 0 || last != blocks-1 {
			t.Errorf("%d blocks: the lowest hash falls into %d, the highest into %d", blocks, first, last)
		}
		for range 1000 {
			lo := rng.Uint64()
			got := place(Hash{Lo: lo}, blocks)
			if want := uint64(float64(lo) / (1 << 64) * float64(blocks)); math.Abs(float64(got)-float64(want)) > 1+float64(blocks)/(1<<50) {
				t.Fatalf("%d blocks: hash %x falls into %d, want about %d", blocks, lo, got, want)
			}
		}
	}
}

func TestWriteToTellsOfAFault(t *testing.T) {
	testkit.Fails(NewBuilder(1, 12).Filter().WriteTo(brokenWriter{}))(t, "WriteTo a broken writer", io.ErrClosedPipe)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestHasBatchRefusesTooMany(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("HasBatch took 33 hashes")
		}
	}()
	NewBuilder(1, 12).Filter().HasBatch(make([]Hash, BatchSize+1))
}

func TestNothingIsAllocated(t *testing.T) {
	f := NewBuilder(1000, 12).Filter()
	text := "promo@bulk.test"
	allocs := testing.AllocsPerRun(100, func() {
		var hs [BatchSize]Hash
		for i := range hs {
			hs[i] = testSeed.SumString(text)
		}
		hs[0] = testSeed.SumSipString(text)
		f.HasBatch(hs[:])
		f.Has(hs[0])
	})
	if allocs != 0 {
		t.Errorf("hashing and asking allocates %v times", allocs)
	}
}

// The vectors are SipHash's own (key 00..0f, input 00, 01, ...; 128-bit output).
func TestSipHashIsSipHash(t *testing.T) {
	var s Seed
	var input []byte
	for i := range s {
		s[i] = byte(i)
	}
	for _, want := range []string{
		"a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45",
		"8177228da4a45dc7fca38bdef60affe4",
	} {
		h := s.SumSip(input)
		got := hex.EncodeToString(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, h.Lo), h.Hi))
		testkit.Equal(t, fmt.Sprintf("SipHash-2-4-128 of %x", input), got, want)
		input = append(input, byte(len(input)))
	}
}

// Sums are in files, so they may not change with the library.
func TestXXH3IsXXH3(t *testing.T) {
	for _, tt := range []struct {
		seed byte
		key  string
		want Hash
	}{
		{0, "", Hash{0x99aa06d3014798d8, 0x6001c324468d497f}}, // XXH3's own test value
		{42, "", Hash{0x16c20acd33f7af2f, 0x3c1d09e9fe249164}},
		{42, "bulk.test", Hash{0xe3c13770be3f2e84, 0xc1980d2dac5ab75b}},
	} {
		if got := (Seed{0: tt.seed, 8: 7}).SumString(tt.key); got != tt.want {
			t.Errorf("XXH3-128(%q) with seed %d = %#x, want %#x", tt.key, tt.seed, got, tt.want)
		}
	}
	for n := range 300 { // every length class of the hash, both ways
		key := bytes.Repeat([]byte{'x'}, n)
		if testSeed.Sum(key) != testSeed.SumString(string(key)) || testSeed.SumSip(key) != testSeed.SumSipString(string(key)) {
			t.Fatalf("octets and string of %d differ", n)
		}
	}
}

func TestRateAgreesWithFormula(t *testing.T) {
	race.Skip(t)
	// Measured rates of split blocks at these sizes, as the format's
	// description quotes them.
	for _, tt := range []struct{ bits, rate float64 }{{10, 0.0126}, {12, 0.0054}, {16, 0.0013}} {
		blocks := Blocks(10_000_000, tt.bits)
		if got := FalsePositiveRate(10_000_000, blocks); math.Abs(got/tt.rate-1) > 0.05 {
			t.Errorf("%v bits: formula says %.4f %%, measured %.4f %%", tt.bits, 100*got, 100*tt.rate)
		}
	}
	n, ask := uint64(1_000_000), uint64(2_000_000)
	if testing.Short() || race.Enabled {
		n, ask = 100_000, 400_000
	}
	for name, sum := range hashes {
		for _, bits := range []float64{8, 10, 12, 16} {
			b := NewBuilder(n, bits)
			eachBatch(sum, 0, n, b.AddBatch)
			f := b.Filter()
			perhaps := 0
			eachBatch(sum, 1<<40, 1<<40+ask, func(hs []Hash) {
				for m := f.HasBatch(hs); m != 0; m &= m - 1 {
					perhaps++
				}
			})
			rate, want := float64(perhaps)/float64(ask), FalsePositiveRate(n, f.Blocks())
			if math.Abs(rate/want-1) > 0.1 {
				t.Errorf("%s at %v bits: %.4f %% false positives, formula says %.4f %%", name, bits, 100*rate, 100*want)
			}
		}
	}
}

func TestRateAtTheEdges(t *testing.T) {
	for _, tt := range []struct {
		n, blocks uint64
		low, high float64
	}{
		{0, 1, 0, 0}, {1, 1, 1e-10, 1e-8}, {1, 1 << 40, 0, 1e-20}, {1 << 40, 1, 1, 1}, {1 << 60, 1 << 56, 0.001, 0.01}, {5, 0, 0, 0},
	} {
		if got := FalsePositiveRate(tt.n, tt.blocks); !(got >= tt.low && got <= tt.high) {
			t.Errorf("FalsePositiveRate(%d, %d) = %v, want %v to %v", tt.n, tt.blocks, got, tt.low, tt.high)
		}
	}
}

func TestBlocks(t *testing.T) {
	for _, tt := range []struct {
		n    uint64
		bits float64
		want uint64
	}{
		{0, 12, 1}, {1, 12, 1}, {21, 12, 1}, {22, 12, 2}, {10_000_000, 12, 468_750}, {1 << 32, 16, 1 << 28},
	} {
		testkit.Equal(t, fmt.Sprintf("Blocks(%d, %v)", tt.n, tt.bits), Blocks(tt.n, tt.bits), tt.want)
	}
}

func Example() {
	seed := Seed{ /* 16 random bytes */ }
	b := NewBuilder(2, DefaultBitsPerKey)
	b.AddBatch([]Hash{seed.SumString("bulk.test"), seed.SumString("promo@shop.test")})
	f := b.Filter()

	asked := []Hash{seed.SumString("example.org"), seed.SumString("bulk.test")}
	fmt.Printf("%02b\n", f.HasBatch(asked)) // bit i is key i
	// Output: 10
}

func TestOverAndDecodeAreTheFilterThatWasWritten(t *testing.T) {
	b := NewBuilder(1000, 12)
	eachBatch(testSeed.Sum, 0, 1000, b.AddBatch)
	f := b.Filter()
	var file bytes.Buffer
	testkit.Value(f.WriteTo(&file))(t)
	over, ok := Over(file.Bytes())
	if !ok {
		t.Skip("this machine's byte order is not the file's")
	}
	decoded, ok := Decode(bytes.Clone(file.Bytes()))
	if !ok {
		t.Fatal("Decode refuses what WriteTo wrote")
	}
	for i := range f.blocks {
		if over.blocks[i] != f.blocks[i] || decoded.blocks[i] != f.blocks[i] {
			t.Fatalf("block %d differs", i)
		}
	}
	eachBatch(testSeed.Sum, 500, 1500, func(hs []Hash) {
		if got, want := over.HasBatch(hs), f.HasBatch(hs); got != want {
			t.Fatalf("HasBatch = %b, want %b", got, want)
		}
		for _, h := range hs {
			if at := over.Offset(h); at%BlockBytes != 0 || at >= uint64(file.Len()) {
				t.Fatalf("Offset = %d of %d", at, file.Len())
			}
		}
	})
	decoded.reverse()
	decoded.reverse()
	testkit.Equal(t, "reversed twice is not the same", decoded.blocks[7], f.blocks[7])
	if got, want := (&Filter{blocks: []block{{1: 0x01020304}}}), uint32(0x04030201); true {
		got.reverse()
		testkit.Equal(t, "reverse of 0x01020304", got.blocks[0][1], want)
	}
}

func TestOverRefuses(t *testing.T) {
	mem := make([]byte, 10*BlockBytes)
	for name, bad := range map[string][]byte{
		"nothing": nil, "a part of a block": mem[:BlockBytes+1], "not aligned to lanes": mem[1 : 1+BlockBytes],
	} {
		if _, ok := Over(bad); ok {
			t.Errorf("Over took %s", name)
		}
		if _, ok := Decode(bad); ok {
			t.Errorf("Decode took %s", name)
		}
	}
}

func TestSampleAgreesWithFormula(t *testing.T) {
	const n = 100_000
	for _, bits := range []float64{8, 12} {
		b := NewBuilder(n, bits)
		eachBatch(testSeed.Sum, 0, n, b.AddBatch)
		f := b.Filter()
		got, want := f.Sample(1_000_000, 1), FalsePositiveRate(n, f.Blocks())
		if math.Abs(got/want-1) > 0.1 {
			t.Errorf("%v bits: Sample = %.4f %%, formula says %.4f %%", bits, 100*got, 100*want)
		}
	}
	testkit.Equal(t, "Sample of no hashes", NewBuilder(10, 12).Filter().Sample(0, 1), 0)
}

func TestGrowingHasTheBitsOfAFilter(t *testing.T) {
	b, g := NewBuilder(1000, 12), NewGrowing(1000, 12)
	eachBatch(testSeed.Sum, 0, 1000, func(hs []Hash) {
		b.AddBatch(hs)
		for _, h := range hs {
			g.Add(h)
		}
	})
	f := b.Filter()
	var want, got bytes.Buffer
	f.WriteTo(&want)
	if n, err := g.WriteTo(&got); err != nil || n != int64(got.Len()) || !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Fatalf("WriteTo = %d, %v; other bits than those of a Filter", n, err)
	}
	eachBatch(testSeed.Sum, 500, 5000, func(hs []Hash) {
		if g.HasBatch(hs) != f.HasBatch(hs) {
			t.Fatal("HasBatch differs from that of a Filter")
		}
	})
	key := numbered(7)
	if g.Add(testSeed.Sum(key[:])) {
		t.Error("a key that is there was added")
	}
	if g := Grow(f); g.HasBatch([]Hash{testSeed.Sum(key[:])}) != 1 || g.Blocks() != f.Blocks() {
		t.Error("Grow has lost a key")
	}
}

// TestGrowingWhileAsked is for the race detector, and for the promise that a key is there once Add has returned.
func TestGrowingWhileAsked(t *testing.T) {
	g := NewGrowing(4000, 12)
	var group sync.WaitGroup
	for w := range uint64(4) {
		group.Go(func() {
			for i := range uint64(1000) {
				key := numbered(w*1000 + i)
				h := testSeed.Sum(key[:])
				g.Add(h)
				if g.HasBatch([]Hash{h}) != 1 {
					t.Error("a key that was added is not there")
					return
				}
			}
		})
	}
	group.Wait()
}

// reserved are so many blocks in addresses that no memory stands behind.
func reserved(t *testing.T, blocks uint64) []block {
	t.Helper()
	mem, err := syscall.Mmap(-1, 0, int(blocks*BlockBytes), syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Skipf("no room for %d blocks in the address space: %v", blocks, err)
	}
	t.Cleanup(func() { syscall.Munmap(mem) })
	return unsafe.Slice((*block)(unsafe.Pointer(unsafe.SliceData(mem))), blocks)
}

// Assembly and Go find the same blocks, at the sizes where 32 bits end, and read
// none of them. With the tag purego both are Go.
func TestLocateAgreesWithPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, blocks := range []uint64{1, 2, 1<<16 - 1, 1 << 16, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<32 + 1} {
		memory := reserved(t, blocks)
		for n := range BatchSize + 1 {
			hs := make([]Hash, n)
			for i := range hs {
				hs[i] = Hash{Hi: rng.Uint64(), Lo: rng.Uint64()}
			}
			if n > 1 {
				hs[0].Lo, hs[1].Lo = 0, 1<<64-1
			}
			const untouched = 1<<64 - 7
			var at [BatchSize]uint64
			for i := range at {
				at[i] = untouched
			}
			locate(&at, memory, hs)
			for i, got := range at {
				want := uint64(untouched)
				if i < n {
					want = place(hs[i], blocks)
				}
				if got != want {
					t.Fatalf("%d blocks: locate puts hash %d of %d into block %d, want %d", blocks, i, n, got, want)
				}
			}
		}
	}
}
