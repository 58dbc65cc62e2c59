package build

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"blockd/index/internal/memory"
)

const (
	// aheadBytes is about how much is read from the temporary file for one group of
	// parts. A lane that spills writes its parts one behind the other, so that those
	// of a group are one piece each time: about 300 KiB of a hundred million
	// addresses, where those of one part are 37 KiB. Of such a disk gave 0.3 to
	// 0.6 GB a second, of larger ones 1.0.
	aheadBytes = 4 << 20

	aheadReaders = 2 // pieces asked for at a time
	aheadGroups  = 4 // in memory at a time, those in use included
)

// partReader loads the parts of a scatter, all of them once and about in order, for
// several goroutines. What lies in the file is read before they ask for it, by
// goroutines of its own, into at most aheadGroups buffers.
type partReader struct {
	s      *scatter
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
	bits   uint // of a part's number that tell the parts of a group apart
	groups []partGroup
	room   chan []byte
}

// partGroup is what the file has of some parts that are neighbours.
type partGroup struct {
	read   chan struct{} // closed when what follows is there
	pieces []piece
	err    error
	buf    []byte
	left   atomic.Int32 // parts that were not loaded yet
}

// piece is a run of the file, and where it is in the buffer.
type piece struct{ offset, size, at int64 }

// reader begins to read a scatter that is finished. end it before the scatter is closed.
func (s *scatter) reader(ctx context.Context) *partReader {
	r := &partReader{s: s}
	spilled := int64(0)
	for i := range s.lanes {
		for _, extents := range s.lanes[i].extents {
			for _, e := range extents {
				spilled += int64(e.blocks) * int64(s.block)
			}
		}
	}
	if spilled == 0 {
		return r
	}
	for r.bits < s.bits && spilled>>(s.bits-r.bits-1) <= aheadBytes {
		r.bits++
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.groups = make([]partGroup, 1<<(s.bits-r.bits))
	for i := range r.groups {
		r.groups[i].read = make(chan struct{})
		r.groups[i].left.Store(1 << r.bits)
	}
	r.room = make(chan []byte, aheadGroups)
	for range aheadGroups {
		r.room <- nil
	}
	var next atomic.Int64
	for range aheadReaders {
		r.all.Go(func() { r.readAhead(&next) })
	}
	return r
}

// readAhead reads group after group. It takes a buffer before it takes a number, so
// that the first group which is still to be used always has one.
func (r *partReader) readAhead(next *atomic.Int64) {
	for {
		var buf []byte
		select {
		case buf = <-r.room:
		case <-r.ctx.Done():
			return
		}
		number := int(next.Add(1)) - 1
		if number >= len(r.groups) {
			return
		}
		g := &r.groups[number]
		g.buf, g.err = r.read(g, number, buf)
		close(g.read)
	}
}

// read reads what the file has of a group, in place of what buf has.
func (r *partReader) read(g *partGroup, number int, buf []byte) ([]byte, error) {
	for i := range r.s.lanes {
		for _, extents := range r.s.lanes[i].extents[number<<r.bits:][:1<<r.bits] {
			for _, e := range extents {
				g.pieces = append(g.pieces, piece{offset: e.offset, size: int64(e.blocks) * int64(r.s.block)})
			}
		}
	}
	slices.SortFunc(g.pieces, func(a, b piece) int { return cmp.Compare(a.offset, b.offset) })
	size, joined := int64(0), g.pieces[:0]
	for _, p := range g.pieces {
		if last := len(joined) - 1; last >= 0 && joined[last].offset+joined[last].size == p.offset {
			joined[last].size += p.size
		} else {
			joined = append(joined, piece{p.offset, p.size, size})
		}
		size += p.size
	}
	g.pieces = joined
	buf = memory.Grow(buf[:0], int(size))
	for _, p := range g.pieces {
		if err := r.ctx.Err(); err != nil {
			return buf, err
		}
		if err := r.s.file.read(buf[p.at:][:p.size], p.offset); err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// end ends the reading. Nothing is loaded any more.
func (r *partReader) end() {
	if r.cancel != nil {
		r.cancel()
		r.all.Wait()
	}
}

// load appends the blocks of one part to dst, those of a lane in the order in which
// they were filled.
func (r *partReader) load(dst []byte, number int) ([]byte, error) {
	if r.s.gone[number] {
		return dst, errDropped
	}
	if r.groups != nil {
		g := &r.groups[number>>r.bits]
		select {
		case <-g.read:
		case <-r.ctx.Done():
			return dst, r.ctx.Err()
		}
		if g.err != nil {
			return dst, g.err
		}
		from := len(dst)
		for i := range r.s.lanes {
			for _, e := range r.s.lanes[i].extents[number] {
				dst = append(dst, g.extent(e, r.s.block)...)
			}
		}
		if g.left.Add(-1) == 0 {
			r.room <- g.buf
			g.buf = nil
		}
		if !whole(dst[from:], r.s.block) {
			return dst, errSpill
		}
	}
	return r.s.appendBlocks(dst, number), nil
}

// extent is what was read of an extent.
func (g *partGroup) extent(e extent, block int) []byte {
	i, found := slices.BinarySearchFunc(g.pieces, e.offset, func(p piece, offset int64) int { return cmp.Compare(p.offset, offset) })
	if !found {
		i--
	}
	p := g.pieces[i]
	return g.buf[p.at+e.offset-p.offset:][:int(e.blocks)*block]
}
