package filter

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/twmb/murmur3"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// It is said that a filter to which 0 to i have been added answers false for i+1. Guava's
// says true 16,578 times on the way to ten million at 1 %: with the rate that the filter
// has at each fill.
func TestNextNumberIsNotAbsent(t *testing.T) {
	race.Skip(t)
	f := testkit.Value(New("guava", 10_000_000, 0.01))(t)
	perhaps, first := 0, -1
	var key [4]byte
	for i := range uint32(10_000_000) {
		binary.LittleEndian.PutUint32(key[:], i)
		f.Add(key[:])
		binary.LittleEndian.PutUint32(key[:], i+1)
		if f.Has(key[:]) {
			if perhaps++; first < 0 {
				first = int(i)
			}
		}
	}
	if perhaps != 16_578 || first != 1_502_929 {
		t.Errorf("true %d times, first after %d; Guava 31.1 has 16578, 1502929", perhaps, first)
	}
}

// It is said that one hash of 32 bits is enough to make all places of a key from. Two keys
// that share it then share every place, whatever the size of the filter: of 300,000 keys
// some do. Their hashes of 128 bits tell them apart.
func TestOneShortHashCollidesWhole(t *testing.T) {
	f := testkit.Value(New("guava", 300_000, 1e-9))(t)
	g := f.(*guava)
	places := func(short uint32) (all []uint64) { // any function of it would do
		for i := range uint64(g.hashes) {
			all = append(all, (uint64(short)+i*(uint64(short)*0x9e3779b97f4a7c15>>32))%(uint64(len(g.array))*8))
		}
		return all
	}
	long := func(key []byte) (all []uint64) {
		h1, h2 := murmur3.Sum128(key)
		for i := range g.hashes {
			all = append(all, g.place(h1, h2, i))
		}
		return all
	}
	seen, pairs := map[uint32]int{}, 0
	for i := range 300_000 {
		short := murmur3.Sum32(sender(i))
		other, ok := seen[short]
		if seen[short] = i; !ok {
			continue
		}
		pairs++
		testkit.EqualSlices(t, "one value gives two sets of places", places(murmur3.Sum32(sender(i))), places(murmur3.Sum32(sender(other))))
		if slices.Equal(long(sender(i)), long(sender(other))) {
			t.Errorf("keys %d and %d share all places in Guava's filter", i, other)
		}
	}
	if pairs == 0 {
		t.Error("no two of 300,000 keys share a hash of 32 bits")
	}
	t.Logf("%d pairs, n^2/2^33 = %.1f", pairs, 300_000.0*300_000/(1<<33))
}
