package build

import (
	"fmt"
	"math/bits"
	"sync"

	"blockd/index/internal/memory"
)

const (
	// A chunk is what goes back to the system at once: one huge page. A pool of
	// little memory has smaller ones.
	maxChunk = memory.HugePage

	// maxGroups bounds the chunks that are half full at any time, on average: 16 MiB.
	maxGroups = 16
)

// blockPool is memory in blocks of one size, of which only a number are in use at
// a time. It is memory that the garbage collector does not know: there is nothing
// in it to look at.
//
// Blocks are asked for by groups, and those of one group lie together in chunks. A
// chunk of which no block is in use any more goes back to the system, which has
// other use for it, and the process's peak is that of the records alone.
type blockPool struct {
	mapped []byte // the system provides what is touched
	mem    []byte // of it, from a whole chunk on
	block  int    // octets
	chunk  int    // blocks
	limit  int    // chunks that groups may have
	chunks []blockChunk
	next   []uint32 // of each block: the one behind it in its list

	mu     sync.Mutex // guards what follows, and lists of free blocks
	groups []blockGroup
	begun  int    // chunks
	used   int    // blocks
	spare  uint32 // the next block of those behind the limit
}

// blockChunk is what a pool knows of one chunk.
type blockChunk struct {
	group int32
	used  int32 // blocks
}

// blockGroup is where blocks of one group come from.
type blockGroup struct {
	free       uint32 // first block of a list; none at its end
	fresh, end uint32 // blocks of its last chunk that were never used
}

// none is no block.
const none = 1<<32 - 1

// newBlockPool makes a pool of so many octets, and of spare blocks that only must
// takes. About expected octets will be in use.
func newBlockPool(block int, octets, expected int64, spare int) (*blockPool, error) {
	size := 1 << bits2(int(min(max(octets/64, int64(block)), maxChunk)))
	p := &blockPool{block: block, chunk: size / block, limit: max(int(octets/int64(size)), 1)}
	groups := 1 << bits2(int(min(max(expected/int64(4*size), 1), maxGroups)))
	for range groups {
		p.groups = append(p.groups, blockGroup{free: none})
	}
	p.spare = uint32(p.limit * p.chunk)
	chunks := p.limit + (spare+p.chunk-1)/p.chunk
	p.chunks, p.next = make([]blockChunk, chunks), make([]uint32, chunks*p.chunk)
	var err error
	if p.mapped, p.mem, err = memory.Huge(chunks * size); err != nil {
		return nil, fmt.Errorf("memory for records: %w", err)
	}
	return p, nil
}

// bits2 is the binary logarithm of n, rounded down.
func bits2(n int) int { return bits.Len(uint(n)) - 1 }

// close gives all memory back.
func (p *blockPool) close() {
	if p.mapped != nil {
		memory.Unmap(p.mapped)
		p.mapped, p.mem = nil, nil
	}
}

func (p *blockPool) at(number uint32) []byte {
	return p.mem[int(number)*p.block:][:p.block]
}

// take returns a block for a group, none if all are in use, and how many are left.
// must takes a spare one then: it may be said as often as there are of those.
func (p *blockPool) take(group int, must bool) (number uint32, left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number = p.takeFrom(group)
	if number == none && p.begun < p.limit {
		p.begin(group)
		number = p.takeFrom(group)
	}
	for other := 0; number == none && other < len(p.groups); other++ {
		number = p.takeFrom(other)
	}
	if number == none && must {
		number = p.spare
		p.spare++
		p.used++
		p.chunks[int(number)/p.chunk].used++
	}
	return number, p.limit*p.chunk - p.used
}

func (p *blockPool) takeFrom(group int) uint32 {
	g := &p.groups[group]
	number := g.free
	switch {
	case number != none:
		g.free = p.next[number]
	case g.fresh < g.end:
		number = g.fresh
		g.fresh++
	default:
		return none
	}
	p.chunks[int(number)/p.chunk].used++
	p.used++
	return number
}

// begin gives a group another chunk.
func (p *blockPool) begin(group int) {
	p.chunks[p.begun].group = int32(group)
	g := &p.groups[group]
	g.fresh = uint32(p.begun * p.chunk)
	g.end = g.fresh + uint32(p.chunk)
	p.begun++
}

// free takes a list of blocks back, which may be used again.
func (p *blockPool) free(first uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for number := first; number != none; {
		chunk, next := &p.chunks[int(number)/p.chunk], p.next[number]
		chunk.used--
		p.used--
		g := &p.groups[chunk.group]
		p.next[number], g.free = g.free, number
		number = next
	}
}

// drop takes a list of blocks back when there is nothing more to take: memory goes
// back to the system.
func (p *blockPool) drop(first uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for number := first; number != none; number = p.next[number] {
		i := int(number) / p.chunk
		if p.chunks[i].used--; p.chunks[i].used == 0 {
			size := p.chunk * p.block
			memory.GiveBack(p.mem[i*size:][:size])
		}
	}
}
