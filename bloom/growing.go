package bloom

import (
	"encoding/binary"
	"io"
	"sync/atomic"
)

// Growing is a filter that keys are added to while others ask it. Bits only go from 0 to 1, each by one atomic
// operation, so no reader needs a lock: a key is there for everybody once Add has returned. It has the bits of a Filter.
type Growing struct{ blocks []block }

// NewGrowing returns a filter for n keys. More keys than n do no harm but to the rate of false positives.
func NewGrowing(n uint64, bitsPerKey float64) *Growing {
	return &Growing{make([]block, Blocks(n, bitsPerKey))}
}

// Grow makes a finished filter one that grows. It has the same memory, which must be writable.
func Grow(f *Filter) *Growing { return &Growing{f.blocks} }

// Blocks is the number of blocks.
func (g *Growing) Blocks() uint64 { return uint64(len(g.blocks)) }

// Add adds one key. It reports whether a bit of it was missing: false for a key that is there already, and for a
// false positive.
func (g *Growing) Add(h Hash) (added bool) {
	b := &g.blocks[place(h, uint64(len(g.blocks)))]
	for lane, salt := range salts {
		set := bit(uint32(h.Lo), salt)
		added = atomic.OrUint32(&b[lane], set)&set == 0 || added
	}
	return added
}

// HasBatch asks for up to BatchSize keys at once, as Filter.HasBatch does.
func (g *Growing) HasBatch(hs []Hash) (perhaps uint32) {
	if len(hs) > BatchSize {
		panic("bloom: more than BatchSize hashes in a batch")
	}
	var at [BatchSize]uint64
	locate(&at, g.blocks, hs)
	for i, h := range hs {
		missing := g.blocks[at[i&(BatchSize-1)]].missingNow(uint32(h.Lo))
		perhaps |= (1 ^ (missing|-missing)>>31) << (i & (BatchSize - 1))
	}
	return perhaps
}

// missingNow is missing for a block that others add to.
func (b *block) missingNow(x uint32) uint32 {
	m := bit(x, salts[0]) &^ atomic.LoadUint32(&b[0])
	m |= bit(x, salts[1]) &^ atomic.LoadUint32(&b[1])
	m |= bit(x, salts[2]) &^ atomic.LoadUint32(&b[2])
	m |= bit(x, salts[3]) &^ atomic.LoadUint32(&b[3])
	m |= bit(x, salts[4]) &^ atomic.LoadUint32(&b[4])
	m |= bit(x, salts[5]) &^ atomic.LoadUint32(&b[5])
	m |= bit(x, salts[6]) &^ atomic.LoadUint32(&b[6])
	return m | bit(x, salts[7])&^atomic.LoadUint32(&b[7])
}

// WriteTo writes the blocks as Filter.WriteTo does. Of a key that is added meanwhile it may write a part of its bits.
func (g *Growing) WriteTo(w io.Writer) (written int64, err error) {
	buf := make([]byte, 0, min(encodeBytes, BlockBytes*len(g.blocks)))
	for i := range g.blocks {
		for lane := range lanes {
			buf = binary.LittleEndian.AppendUint32(buf, atomic.LoadUint32(&g.blocks[i][lane]))
		}
		if len(buf) == cap(buf) || i == len(g.blocks)-1 {
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
