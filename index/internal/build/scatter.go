package build

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"blockd/index/internal/format"
	"blockd/index/internal/memory"
)

const (
	// DefaultMemory bounds what records take before they go to a file: ten
	// million entries of 36 octets are 437 MB, in 450 MB of blocks.
	DefaultMemory = 448 << 20

	// A block is what a lane writes into one part before it takes another. Larger
	// ones save calls when blocks go to the file, smaller ones waste less where
	// there are more parts than memory.
	// The longest record, a pattern of 1,000 octets, fits into the smallest.
	minScatterBlock = 2 << 10
	maxScatterBlock = 8 << 10

	scatterHead = 8 // of a block: u32 octets in use, the head included; u32 CRC32C of them, of a block in the file
)

// scatter holds records in 2^bits parts, each of which is read back as a whole.
// Every goroutine that adds records has a lane of its own, so adding takes no
// lock. What does not fit into memory goes to a file.
type scatter struct {
	bits  uint
	block int // octets
	pool  *blockPool
	ahead bool   // it will not fit into memory: spill before that is full
	gone  []bool // of each part: it was dropped
	file  *spillFile
	lanes []lane
}

// lane is one goroutine's share of a scatter.
type lane struct {
	s       *scatter
	mem     []byte // of the pool
	parts   []part
	extents [][]extent   // of each part, in the file, before its blocks in memory
	turned  int          // the part whose turn it is to be spilled
	writing chan spilled // tells the end of the write that goes on; nil = none does
	_       [64]byte     // lanes are written by different cores
}

// part is where a lane adds to one part.
type part struct {
	at, used    uint32 // the block that is being filled, and how far it is
	first, last uint32 // list of full blocks, in the order in which they were filled
	full        uint32 // their number
}

// extent is a run of blocks in the file.
type extent struct {
	offset int64
	blocks uint32
}

// spilled is what came of a write to the file: a block that is free again, the
// others of it went to the pool.
type spilled struct {
	block uint32
	err   error
}

// newScatter makes a scatter of 2^bits parts for so many lanes, which takes about
// memory octets, and probably only the expected ones. bits becomes less where there
// is too little memory for them.
func newScatter(lanes int, bits uint, memory, expected int64, file *spillFile) (*scatter, error) {
	// Each part has a block that is being filled. Half the memory is for others.
	share := memory / int64(lanes)
	for bits > 0 && share>>(bits+1) < minScatterBlock {
		bits--
	}
	s := &scatter{bits: bits, file: file, ahead: expected > memory, lanes: make([]lane, lanes), gone: make([]bool, 1<<bits)}
	s.block = 1 << bits2(int(min(max(share>>(bits+2), minScatterBlock), maxScatterBlock)))
	var err error
	if s.pool, err = newBlockPool(s.block, memory, min(expected, memory), lanes<<bits); err != nil {
		return nil, err
	}
	for i := range s.lanes {
		l := &s.lanes[i]
		l.s, l.mem = s, s.pool.mem
		l.parts, l.extents = make([]part, 1<<bits), make([][]extent, 1<<bits)
		for p := range l.parts {
			l.parts[p] = part{at: none, used: uint32(s.block), first: none, last: none}
		}
	}
	return s, nil
}

// close gives the memory back.
func (s *scatter) close() {
	for i := range s.lanes {
		if l := &s.lanes[i]; l.writing != nil { // an error has kept finish from it
			<-l.writing
			l.writing = nil
		}
	}
	s.pool.close()
}

// part is the part of a hash.
func (s *scatter) part(h uint64) int { return int(h >> (64 - s.bits)) }

// group is the group of blocks of a part: parts that are loaded one behind the
// other have the same.
func (s *scatter) group(part int) int { return part * len(s.pool.groups) >> s.bits }

// add returns room for n octets, at most minScatterBlock less its head, at the
// end of a part. A thousand parts are added to in turn, so that each writes to
// memory that is in no cache; the line that its next record probably ends in is
// fetched until then. That saves 25 ns of 110 that a record takes to be read.
func (l *lane) add(number, n int) ([]byte, error) {
	p := &l.parts[number]
	if int(p.used)+n > l.s.block {
		if err := l.turn(number); err != nil {
			return nil, err
		}
	}
	at := int(p.at)*l.s.block + int(p.used)
	p.used += uint32(n)
	memory.Prefetch(&l.mem[min(at+2*n, len(l.mem)-1)])
	return l.mem[at : at+n : at+n], nil
}

// turn puts the block of a part behind the full ones and gives it another. Of a
// part's first block there is always one; else this lane has a block to spill. Where
// that is to be expected it begins to when a quarter of the memory is left, so that it
// need not wait.
func (l *lane) turn(number int) (err error) {
	p := &l.parts[number]
	pool, first := l.s.pool, p.at == none
	l.push(p)
	block, left := pool.take(l.s.group(number), first)
	if block == none {
		l.spill()
		if block, err = l.written(); err != nil {
			return err
		}
	} else if l.s.ahead && left < pool.limit*pool.chunk/4 && (l.writing == nil || len(l.writing) > 0) {
		free, err := l.written()
		if err != nil {
			return err
		}
		pool.free(free)
		l.spill()
	}
	p.at, p.used = block, scatterHead
	return nil
}

// push ends the block that is being filled.
func (l *lane) push(p *part) {
	if p.at == none {
		return
	}
	pool := l.s.pool
	binary.LittleEndian.PutUint32(pool.at(p.at), p.used)
	pool.next[p.at] = none
	if p.last == none {
		p.first = p.at
	} else {
		pool.next[p.last] = p.at
	}
	p.last, p.at, p.used = p.at, none, uint32(l.s.block)
	p.full++
}

// spill begins to write full blocks to the file, those of one part one behind the
// other: part by part, going round, an eighth of the lane's share of the memory. So
// most of it is in use when there is nothing more to add. It does nothing while a
// write goes on, or without a full block.
func (l *lane) spill() {
	if l.writing != nil {
		return
	}
	pool := l.s.pool
	goal := pool.limit * pool.chunk / len(l.s.lanes) / 8
	first, parts, blocks := l.turned, 0, 0
	for ; (blocks < goal || blocks == 0) && parts < len(l.parts); parts++ {
		blocks += int(l.parts[(first+parts)%len(l.parts)].full)
	}
	if blocks == 0 {
		return
	}
	l.turned = (first + parts) % len(l.parts)
	offset := l.s.file.reserve(int64(blocks) * int64(l.s.block))
	at, list, last := offset, uint32(none), uint32(none)
	for i := range parts {
		number := (first + i) % len(l.parts)
		p := &l.parts[number]
		if p.full == 0 {
			continue
		}
		l.extents[number] = append(l.extents[number], extent{at, p.full})
		at += int64(p.full) * int64(l.s.block)
		if list == none {
			list = p.first
		} else {
			pool.next[last] = p.first
		}
		last = p.last
		p.first, p.last, p.full = none, none, 0
	}
	l.writing = make(chan spilled, 1)
	go func() { l.writing <- spilled{list, l.s.write(list, offset)} }()
}

// written waits for the write that goes on, and returns a block that it has freed;
// none if there was no write.
func (l *lane) written() (block uint32, err error) {
	if l.writing == nil {
		return none, nil
	}
	w := <-l.writing
	l.writing = nil
	return w.block, w.err
}

// write writes a list of blocks one behind the other and frees them but for the
// first one.
func (s *scatter) write(list uint32, offset int64) error {
	pieces := make([][]byte, 0, iovMax)
	for n := list; n != none; n = s.pool.next[n] {
		b := s.pool.at(n)
		binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[scatterHead:blockEnd(b)], format.Castagnoli))
		if pieces = append(pieces, b); len(pieces) == iovMax || s.pool.next[n] == none {
			size, err := s.file.write(pieces, offset)
			if err != nil {
				return err
			}
			offset += size
			pieces = pieces[:0]
		}
	}
	s.pool.free(s.pool.next[list])
	s.pool.next[list] = none
	return nil
}

// finish ends the adding: from here on it may be read.
func (s *scatter) finish() error {
	for i := range s.lanes {
		l := &s.lanes[i]
		free, err := l.written()
		if err != nil {
			return err
		}
		s.pool.free(free)
		for p := range l.parts {
			l.push(&l.parts[p])
		}
	}
	return nil
}

// appendBlocks appends the blocks of one part that are in memory to dst, those of a
// lane in the order in which they were filled.
func (s *scatter) appendBlocks(dst []byte, number int) []byte {
	for i := range s.lanes {
		for b := s.lanes[i].parts[number].first; b != none; b = s.pool.next[b] {
			from := len(dst)
			dst = memory.Grow(dst, s.block)
			block := s.pool.at(b)
			copy(dst[from:], block[:blockEnd(block)])
		}
	}
	return dst
}

// errDropped reports a fault of this program, rather than to lose keys.
var errDropped = errors.New("records were given back before they were written")

// drop gives the memory of a part back: it cannot be loaded again.
func (s *scatter) drop(number int) {
	s.gone[number] = true
	for i := range s.lanes {
		p := &s.lanes[i].parts[number]
		s.pool.drop(p.first)
		p.first, p.last, p.full = none, none, 0
	}
}

// whole checks the sums of blocks that were read back.
func whole(b []byte, block int) bool {
	for ; len(b) > 0; b = b[block:] {
		used := binary.LittleEndian.Uint32(b)
		if used < scatterHead || int(used) > block || crc32.Checksum(b[scatterHead:used], format.Castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
			return false
		}
	}
	return true
}

// blockEnd is where the records of the block at b end; they begin at scatterHead.
func blockEnd(b []byte) int { return int(binary.LittleEndian.Uint32(b)) }
