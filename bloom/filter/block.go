package filter

import (
	mathbits "math/bits"

	"github.com/twmb/murmur3"
)

// Seen is a split-block filter: a key has all its places in one block, one in each of
// eight lanes of 32, so that a look-up reads one line of the processor's cache. See Putze, Sanders
// and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007).
const (
	lanes = 8
	lane  = 32 // places in it
)

// spot is where a key has its places: a block, and five bits for each lane.
type spot struct {
	block  uint64
	places uint64
}

// spotOf finds the spot of a key among so many blocks.
func spotOf(key string, blocks uint64) spot {
	h1, h2 := murmur3.StringSum128(key)
	block, _ := mathbits.Mul64(h1, blocks)
	return spot{block, h2}
}

// place is the place in a lane.
func (s spot) place(i int) uint64 { return s.places >> (5 * i) % lane }
