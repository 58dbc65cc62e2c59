package index

import (
	"encoding/binary"
	"iter"
)

const (
	minBlock = 4 << 10
	maxBlock = 256 << 10
)

// arena holds records one behind the other in a few large blocks without
// pointers: the garbage collector has nothing to look at, and nothing is copied
// when it grows. Each record has its length before it, two bytes.
type arena struct {
	blocks [][]byte
	spare  *spareBlocks // where to take blocks from first; nil = always new ones
}

// spareBlocks are blocks of maxBlock bytes that another arena needs no more: so
// a bucket is merged into the memory of the one before it.
type spareBlocks [][]byte

func (s *spareBlocks) take() []byte {
	if s == nil || len(*s) == 0 {
		return nil
	}
	last := len(*s) - 1
	b := (*s)[last]
	*s = (*s)[:last]
	return b
}

// release empties a and keeps its large blocks.
func (s *spareBlocks) release(a *arena) {
	for _, b := range a.blocks {
		if cap(b) == maxBlock {
			*s = append(*s, b[:0])
		}
	}
	a.blocks = nil
}

// spot is where a record lies: far smaller than a slice.
type spot struct{ block, offset uint32 }

// add copies record, which has at most maxRecord bytes, into the arena.
func (a *arena) add(record []byte) {
	need := 2 + len(record)
	last := len(a.blocks) - 1
	if last < 0 || cap(a.blocks[last])-len(a.blocks[last]) < need {
		size := minBlock
		if last >= 0 {
			size = min(2*cap(a.blocks[last]), maxBlock)
		}
		var b []byte
		if size == maxBlock {
			b = a.spare.take()
		}
		if b == nil {
			b = make([]byte, 0, size)
		}
		a.blocks = append(a.blocks, b)
		last++
	}
	b := binary.LittleEndian.AppendUint16(a.blocks[last], uint16(len(record)))
	a.blocks[last] = append(b, record...)
}

// at returns the record at s, in the arena's memory.
func (a *arena) at(s spot) []byte {
	b := a.blocks[s.block][s.offset:]
	n := int(binary.LittleEndian.Uint16(b))
	return b[2 : 2+n : 2+n]
}

// all yields the records in the order in which they were added.
func (a *arena) all() iter.Seq2[spot, []byte] {
	return func(yield func(spot, []byte) bool) {
		for i, b := range a.blocks {
			for offset := 0; offset < len(b); {
				s := spot{uint32(i), uint32(offset)}
				record := a.at(s)
				if !yield(s, record) {
					return
				}
				offset += 2 + len(record)
			}
		}
	}
}

// mark is an arena's length; cut takes everything added since back out.
type mark struct{ blocks, last int }

func (a *arena) mark() mark {
	if len(a.blocks) == 0 {
		return mark{}
	}
	return mark{len(a.blocks), len(a.blocks[len(a.blocks)-1])}
}

func (a *arena) cut(m mark) {
	clear(a.blocks[m.blocks:])
	a.blocks = a.blocks[:m.blocks]
	if m.blocks > 0 {
		a.blocks[m.blocks-1] = a.blocks[m.blocks-1][:m.last]
	}
}
