package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/murmur3"
)

// guava is a stream of BloomFilter.writeTo, by Guava 31.1: strategy (1 octet), hashes
// (1 octet), number of longs (4 octets, highest first), and the longs. The number of bits
// is that of the longs. Nothing tells how keys became octets: see Funnel.
type guava struct {
	strategy byte
	hashes   int
	array    bigWords
}

// The ordinals of BloomFilterStrategies.
const (
	mitz32 = 0
	mitz64 = 1 // the default since Guava 14
)

const (
	guavaHead  = 6
	guavaLongs = math.MaxInt32 // a Java array
)

func newGuava(n uint64, p float64) (Filter, error) {
	exact := math.Trunc(classicBits(n, p))
	if err := checkBits(exact, guavaLongs*64, "Guava"); err != nil {
		return nil, err
	}
	longs := max(1, uint64(math.Ceil(exact/64)))
	hashes := max(1, int(math.Floor(exact/float64(n)*ln2+0.5)))
	return &guava{mitz64, hashes, make(bigWords, longs*8)}, nil
}

func isGuava(c contents) bool {
	_, err := readGuava(c)
	return err == nil
}

func readGuava(c contents) (Filter, error) {
	if len(c.data) < guavaHead {
		return nil, errors.New("ends within its header")
	}
	strategy, hashes, longs := c.data[0], int(c.data[1]), binary.BigEndian.Uint32(c.data[2:])
	array := c.data[guavaHead:]
	switch {
	case strategy > mitz64:
		return nil, fmt.Errorf("no strategy %d", strategy)
	case hashes == 0:
		return nil, errors.New("no hashes")
	case longs == 0 || longs > guavaLongs || uint64(longs)*8 != uint64(len(array)):
		return nil, fmt.Errorf("its header tells of %d longs, and %d octets follow", longs, len(array))
	}
	return &guava{strategy, hashes, array}, nil
}

func (g *guava) Kind() string { return "guava" }

// place is the i-th place, from 0, of a key with this hash.
func (g *guava) place(h1, h2 uint64, i int) uint64 {
	h := h1 + uint64(i)*h2
	if g.strategy == mitz32 { // two halves of h1; negative numbers are inverted
		short := int32(h1) + int32(i+1)*int32(h1>>32)
		h = uint64(short ^ short>>31)
	}
	return h & math.MaxInt64 % (uint64(len(g.array)) * 8)
}

func (g *guava) Has(key []byte) bool {
	h1, h2 := murmur3.Sum128(key)
	for i := range g.hashes {
		if !g.array.has(g.place(h1, h2, i)) {
			return false
		}
	}
	return true
}

func (g *guava) Add(key []byte) {
	h1, h2 := murmur3.Sum128(key)
	for i := range g.hashes {
		g.array.set(g.place(h1, h2, i))
	}
}

func (g *guava) Files(out string) []File {
	head := binary.BigEndian.AppendUint32([]byte{g.strategy, byte(g.hashes)}, uint32(len(g.array)/8))
	return single(out, head, g.array)
}
