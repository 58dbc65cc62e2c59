package bloom

import (
	"encoding/binary"
	"io"
	"math/bits"
)

type block [lanes]uint32

// Filter is a finished filter. It never changes, so goroutines share it without
// a lock. Only Builder.Filter, Over and Decode make one; the zero Filter has no
// blocks and must not be asked.
type Filter struct{ blocks []block }

// Blocks is the number of blocks.
func (f *Filter) Blocks() uint64 { return uint64(len(f.blocks)) }

// place returns the block of h among n: the high half of a 64x64-bit product, so
// every n up to 2^64 is filled evenly, without a division.
func place(h Hash, n uint64) uint64 {
	hi, _ := bits.Mul64(h.Lo, n)
	return hi
}

// bit returns the bit that x sets in a lane.
func bit(x, salt uint32) uint32 { return 1 << ((x * salt) >> 27) }

// missing returns the bits that x needs and b lacks, those of all lanes or'ed.
func (b *block) missing(x uint32) uint32 {
	m := bit(x, salts[0]) &^ b[0]
	m |= bit(x, salts[1]) &^ b[1]
	m |= bit(x, salts[2]) &^ b[2]
	m |= bit(x, salts[3]) &^ b[3]
	m |= bit(x, salts[4]) &^ b[4]
	m |= bit(x, salts[5]) &^ b[5]
	m |= bit(x, salts[6]) &^ b[6]
	return m | bit(x, salts[7])&^b[7]
}

// Has reports whether the key of h is perhaps in the filter. False is certain.
func (f *Filter) Has(h Hash) bool {
	return f.blocks[place(h, uint64(len(f.blocks)))].missing(uint32(h.Lo)) == 0
}

// HasBatch asks for up to BatchSize keys at once; bit i of the answer is set if
// hs[i] is perhaps in the filter. More hashes than that are a programming error
// and panic.
//
// A filter of 15 MB lies in no near cache, and one miss costs as much as all the
// arithmetic of a dozen probes. So all blocks are fetched first, their misses
// overlap, and the probes, which have no branch, find them in the nearest cache:
// 21 ns a key with its hash at 10 million keys, 32 ns where prefetches is false.
// The probes themselves are 10 of the 21, all that AVX2 could save a part of.
func (f *Filter) HasBatch(hs []Hash) uint32 {
	if len(hs) > BatchSize {
		panic("bloom: more than BatchSize hashes in a batch")
	}
	if len(hs) == 1 {
		missing := f.blocks[place(hs[0], uint64(len(f.blocks)))].missing(uint32(hs[0].Lo))
		return 1 ^ (missing|-missing)>>31
	}
	var at [BatchSize]uint64
	locate(&at, f.blocks, hs)
	if !prefetches {
		// Reads that do not depend on each other are in flight together.
		var near uint32
		for i := range hs {
			near |= f.blocks[at[i&(BatchSize-1)]][0]
		}
		if near == 0 {
			return 0 // true of empty blocks, and it keeps the compiler from dropping the reads
		}
	}
	var perhaps uint32
	for i, h := range hs {
		missing := f.blocks[at[i&(BatchSize-1)]].missing(uint32(h.Lo))
		// The top bit of x|-x is set unless x is 0.
		perhaps |= (1 ^ (missing|-missing)>>31) << (i & (BatchSize - 1))
	}
	return perhaps
}

// encodeBytes is the size of the pieces that WriteTo writes.
const encodeBytes = 64 << 10

// WriteTo writes the blocks as the file format has them: lanes in order, each
// little-endian.
func (f *Filter) WriteTo(w io.Writer) (int64, error) {
	buf := make([]byte, 0, min(encodeBytes, BlockBytes*len(f.blocks)))
	var written int64
	for i := range f.blocks {
		for _, lane := range &f.blocks[i] {
			buf = binary.LittleEndian.AppendUint32(buf, lane)
		}
		if len(buf) == cap(buf) || i == len(f.blocks)-1 {
			n, err := w.Write(buf)
			written += int64(n)
			if err != nil {
				return written, err
			}
			buf = buf[:0]
		}
	}
	return written, nil
}
