// Package bloom is the approximate half of an index: a split-block Bloom filter
// that answers "surely not" or "perhaps" at the cost of one cache line.
//
// It knows hashes and bits, never what the keys mean. The layout of the bits is
// part of docs/index-format.md and never changes within a format version.
package bloom

// BatchSize is the largest number of hashes HasBatch takes. 32 blocks of 32
// bytes are one KiB of cache, and a core has about a dozen reads in flight:
// larger batches were not faster.
const BatchSize = 32

const (
	lanes = 8 // of 32 bits in a block; a key sets one bit in each

	// BlockBytes is the size of a block, half a cache line: a probe never
	// touches two lines.
	BlockBytes = 4 * lanes
	// BlockBits is the same in bits.
	BlockBits = 8 * BlockBytes
)

// salts spread one 32-bit value over the lanes: the top five bits of value times
// salt are the lane's bit. Any odd numbers will do; these are the ones that the
// Parquet format fixed for its split-block filters.
var salts = [lanes]uint32{
	0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d,
	0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31,
}
