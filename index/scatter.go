package index

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"golang.org/x/sys/unix"
)

const (
	// defaultMemory bounds what records take before they go to a file: ten
	// million entries of 37 octets are 620 MB, of which 360 MB go there.
	defaultMemory = 256 << 20

	// A block is what a lane writes into one part before it takes another. Larger
	// ones save calls when blocks go to the file, smaller ones waste less where
	// there are more parts than memory.
	// The longest record, a pattern of 1,000 octets, fits into the smallest.
	minScatterBlock = 2 << 10
	maxScatterBlock = 16 << 10

	scatterHead = 8 // of a block: u32 octets in use, the head included; u32 CRC32C of them, of a block in the file

)

// scatter holds records in 2^bits parts, each of which is read back as a whole.
// Every goroutine that adds records has a lane of its own, so adding takes no
// lock. What does not fit into memory goes to a file.
//
// Records lie in blocks of memory that the garbage collector does not know: there
// is nothing in them for it to look at.
type scatter struct {
	bits  uint
	block int // octets
	file  *spillFile
	lanes []lane
}

// lane is one goroutine's share of a scatter.
type lane struct {
	s       *scatter
	mem     []byte   // blocks, mapped; the system provides what is touched
	fresh   uint32   // blocks that were used at some time
	next    []uint32 // of each block: the one behind it in its list
	free    uint32   // first block of a list; none at its end
	parts   []part
	extents [][]extent // of each part, in the file, before its blocks in memory
	turned  int        // the part whose turn it is to be spilled
	_       [64]byte   // lanes are written by different cores
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

// none is no block.
const none = 1<<32 - 1

// newScatter makes a scatter of 2^bits parts for so many lanes, which takes about
// memory octets. bits becomes less where there is too little memory for them.
func newScatter(lanes int, bits uint, memory int64, file *spillFile) (*scatter, error) {
	// Each part has a block that is being filled. Half the memory is for others.
	share := memory / int64(lanes)
	for bits > 0 && share>>(bits+1) < minScatterBlock {
		bits--
	}
	s := &scatter{bits: bits, file: file, lanes: make([]lane, lanes)}
	s.block = int(min(max(share>>(bits+2), minScatterBlock), maxScatterBlock))
	s.block = 1 << bits2(s.block)
	blocks := max(int(share)/s.block, 2<<bits)
	for i := range s.lanes {
		l := &s.lanes[i]
		l.s, l.free = s, none
		l.next = make([]uint32, blocks)
		l.parts, l.extents = make([]part, 1<<bits), make([][]extent, 1<<bits)
		for p := range l.parts {
			l.parts[p] = part{at: none, used: uint32(s.block), first: none, last: none}
		}
		var err error
		if l.mem, err = unix.Mmap(-1, 0, blocks*s.block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
			s.close()
			return nil, fmt.Errorf("memory for records: %w", err)
		}
		adviseHuge(l.mem)
	}
	return s, nil
}

// bits2 is the binary logarithm of n, rounded down.
func bits2(n int) int { return bits.Len(uint(n)) - 1 }

// close gives the memory back. What load has returned stays.
func (s *scatter) close() {
	for i := range s.lanes {
		if l := &s.lanes[i]; l.mem != nil {
			unix.Munmap(l.mem) // fails only for what was never mapped
			l.mem = nil
		}
	}
}

// part is the part of a hash.
func (s *scatter) part(h uint64) int { return int(h >> (64 - s.bits)) }

// add returns room for n octets, at most minScatterBlock less its head, at the
// end of a part.
func (l *lane) add(number, n int) ([]byte, error) {
	p := &l.parts[number]
	if int(p.used)+n > l.s.block {
		if err := l.turn(p); err != nil {
			return nil, err
		}
	}
	at := int(p.at)*l.s.block + int(p.used)
	p.used += uint32(n)
	return l.mem[at : at+n : at+n], nil
}

// turn puts the block of p behind the full ones and gives it another.
func (l *lane) turn(p *part) error {
	l.push(p)
	if l.free == none && int(l.fresh) == len(l.next) {
		if err := l.spill(); err != nil {
			return err
		}
	}
	if l.free != none {
		p.at, l.free = l.free, l.next[l.free]
	} else {
		p.at = l.fresh
		l.fresh++
	}
	p.used = scatterHead
	return nil
}

// push ends the block that is being filled.
func (l *lane) push(p *part) {
	if p.at == none {
		return
	}
	binary.LittleEndian.PutUint32(l.blockAt(p.at), p.used)
	l.next[p.at] = none
	if p.last == none {
		p.first = p.at
	} else {
		l.next[p.last] = p.at
	}
	p.last, p.at, p.used = p.at, none, uint32(l.s.block)
	p.full++
}

func (l *lane) blockAt(number uint32) []byte {
	return l.mem[int(number)*l.s.block:][:l.s.block]
}

// spill writes full blocks to the file, those of one part one behind the other,
// and frees them: part by part, going round, until a quarter of the memory is free.
// So most of it is in use when there is nothing more to add.
func (l *lane) spill() error {
	first, parts, blocks := l.turned, 0, 0
	for ; blocks < len(l.next)/4 && parts < len(l.parts); parts++ {
		blocks += int(l.parts[(first+parts)%len(l.parts)].full)
	}
	offset := l.s.file.reserve(int64(blocks) * int64(l.s.block))
	at, pieces := offset, make([][]byte, 0, iovMax)
	flush := func() error {
		n, err := l.s.file.write(pieces, offset)
		offset += n
		pieces = pieces[:0]
		return err
	}
	for i := range parts {
		number := (first + i) % len(l.parts)
		p := &l.parts[number]
		if p.full == 0 {
			continue
		}
		l.extents[number] = append(l.extents[number], extent{at, p.full})
		for at += int64(p.full) * int64(l.s.block); p.full > 0; p.full-- {
			b := l.blockAt(p.first)
			binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[scatterHead:blockEnd(b)], castagnoli))
			if pieces = append(pieces, b); len(pieces) == iovMax {
				if err := flush(); err != nil {
					return err
				}
			}
			// Nobody writes into a freed block before this call ends.
			p.first, l.next[p.first], l.free = l.next[p.first], l.free, p.first
		}
		p.last = none
	}
	l.turned = (first + parts) % len(l.parts)
	return flush()
}

// finish ends the adding: from here on load may be called.
func (s *scatter) finish() {
	for i := range s.lanes {
		for p := range s.lanes[i].parts {
			s.lanes[i].push(&s.lanes[i].parts[p])
		}
	}
}

// load appends the blocks of one part to dst, those of a lane in the order in
// which they were filled. Goroutines may load at one time.
func (s *scatter) load(dst []byte, number int) ([]byte, error) {
	for i := range s.lanes {
		l := &s.lanes[i]
		for _, e := range l.extents[number] {
			from := len(dst)
			dst = grow(dst, int(e.blocks)*s.block)
			if err := s.file.read(dst[from:], e.offset); err != nil {
				return dst, err
			}
			if !whole(dst[from:], s.block) {
				return dst, errSpill
			}
		}
		for b := l.parts[number].first; b != none; b = l.next[b] {
			from := len(dst)
			dst = grow(dst, s.block)
			used := binary.LittleEndian.Uint32(l.blockAt(b))
			copy(dst[from:], l.blockAt(b)[:used])
		}
	}
	return dst, nil
}

// whole checks the sums of blocks that were read back.
func whole(b []byte, block int) bool {
	for ; len(b) > 0; b = b[block:] {
		used := binary.LittleEndian.Uint32(b)
		if used < scatterHead || int(used) > block || crc32.Checksum(b[scatterHead:used], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
			return false
		}
	}
	return true
}

// blockEnd is where the records of the block at b end; they begin at scatterHead.
func blockEnd(b []byte) int { return int(binary.LittleEndian.Uint32(b)) }

// grow appends n octets, whatever they hold.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b[:len(b)+n]
	}
	return append(b, make([]byte, n)...)
}
