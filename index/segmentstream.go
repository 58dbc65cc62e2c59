package index

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"os"
	"slices"

	"github.com/zeebo/xxh3"

	"blockd/index/internal/format"
	"blockd/index/internal/memory"
)

// segmentEntry decodes one entry of a segment with so many reasons. Its reason has
// the number that it has there.
func segmentEntry(c *format.Cursor, reasons int) (key []byte, e format.Entry) {
	key = c.Key()
	e.Line = int(c.Uvarint(math.MaxInt))
	flags := c.Byte()
	e.Action, e.Scope = format.Asked(flags)
	if flags&format.FlagReason != 0 {
		e.Reason = uint32(c.Uvarint(uint64(reasons-1))) + 1
	}
	return key, e
}

// chunk reads a chunk whole, in place of what buf has.
func (s segmentSpan) chunk(f *os.File, buf []byte) ([]byte, error) {
	buf = memory.Grow(buf[:0], int(s.length))
	if _, err := f.ReadAt(buf, s.offset); err != nil {
		return nil, fmt.Errorf("%w: %w", errSegment, err)
	}
	if xxh3.Hash(buf) != s.sum {
		return nil, errSegment
	}
	return buf, nil
}

// segmentStream gives the entries of a segment in the order of their lines, and lets
// its reader look ahead. It takes a chunk of memory for each worker of the build
// that wrote the segment, and 24 octets for each entry looked ahead.
type segmentStream struct {
	f       *os.File
	seed    uint64
	reasons []uint64     // the sum of each
	waiting []streamed   // chunks that were not begun, the next one last
	open    []*openChunk // those that were: one or a few
	spare   [][]byte

	ahead []seen // from taken on: what was read and not taken
	taken int
	end   bool // nothing is to be read behind ahead
	err   error
}

// seen is what a stream tells of an entry.
type seen struct {
	sum   uint64 // of all that it says, its line aside
	line  int
	where int64 // in the file
}

// streamed is a chunk, with its first line.
type streamed struct {
	segmentSpan
	line int
}

// openChunk is a chunk that is being read.
type openChunk struct {
	format.Cursor
	streamed        // line is that of next
	next     seen   // the entry in hand
	left     uint64 // entries behind it
	buf      []byte
}

// newSegmentStream begins to read the segment in f, which m describes. Streams of
// one seed sum alike.
func newSegmentStream(f *os.File, m *segmentMeta, seed uint64) (*segmentStream, error) {
	s := &segmentStream{f: f, seed: seed}
	for i := range m.reasons.first {
		s.reasons = append(s.reasons, xxh3.HashSeed(m.reasons.table.Get(uint32(i)), seed))
	}
	head := make([]byte, format.MaxStored+32) // more than an entry has
	for _, span := range m.chunks {
		n, _ := f.ReadAt(head[:min(len(head), int(span.length))], span.offset)
		c := format.Cursor{Rest: head[:n]}
		_, e := segmentEntry(&c, len(s.reasons))
		if c.Bad || span.entries == 0 {
			return nil, errSegment
		}
		s.waiting = append(s.waiting, streamed{span, e.Line})
	}
	slices.SortFunc(s.waiting, func(a, b streamed) int { return cmp.Compare(b.line, a.line) })
	return s, nil
}

// peek returns the next entries, n or more: fewer only at the end. They hold until
// the next call. After an error there are none.
func (s *segmentStream) peek(n int) []seen {
	if len(s.ahead)-s.taken < n && !s.end {
		s.ahead = s.ahead[:copy(s.ahead, s.ahead[s.taken:])]
		s.taken = 0
		for most := max(n, streamRun); len(s.ahead) < most && !s.end; {
			s.end = !s.more()
		}
	}
	if s.err != nil {
		return nil
	}
	return s.ahead[s.taken:]
}

// take takes n entries that peek has shown.
func (s *segmentStream) take(n int) { s.taken += n }

// more reads entries of one chunk up to where another one has the next line. It is
// false at the end of all.
func (s *segmentStream) more() bool {
	first, limit := -1, math.MaxInt
	if n := len(s.waiting); n > 0 {
		limit = s.waiting[n-1].line
	}
	for i, c := range s.open {
		switch {
		case first < 0 || c.line < s.open[first].line:
			if first >= 0 {
				limit = min(limit, s.open[first].line)
			}
			first = i
		default:
			limit = min(limit, c.line)
		}
	}
	if first < 0 || s.open[first].line > limit {
		return s.begin()
	}
	c := s.open[first]
	for c.line <= limit {
		s.ahead = append(s.ahead, c.next)
		if c.left == 0 {
			s.spare = append(s.spare, c.buf)
			s.open = slices.Delete(s.open, first, first+1)
			break
		}
		s.step(c)
		if s.err != nil {
			return false
		}
		if len(s.ahead)%streamRun == 0 {
			break
		}
	}
	return true
}

// streamRun is how many entries are read at once, unless more are asked for.
const streamRun = 1 << 12

// begin opens the next chunk. It is false if there is none.
func (s *segmentStream) begin() bool {
	n := len(s.waiting) - 1
	if n < 0 {
		return false
	}
	c := &openChunk{streamed: s.waiting[n], left: s.waiting[n].entries}
	s.waiting = s.waiting[:n]
	if last := len(s.spare) - 1; last >= 0 {
		c.buf, s.spare = s.spare[last], s.spare[:last]
	}
	if c.buf, s.err = c.chunk(s.f, c.buf); s.err != nil {
		return false
	}
	c.Rest = c.buf
	s.open = append(s.open, c)
	s.step(c)
	return s.err == nil
}

// step decodes the next entry of a chunk.
func (s *segmentStream) step(c *openChunk) {
	where := c.offset + int64(len(c.buf)-len(c.Rest))
	key, e := segmentEntry(&c.Cursor, len(s.reasons))
	c.left--
	if c.Bad || e.Line < c.line || c.left == 0 && len(c.Rest) > 0 {
		s.err = errSegment
		return
	}
	sum := xxh3.HashSeed(key, s.seed) + uint64(e.Action)<<32 + uint64(e.Scope)<<36
	if e.Reason != 0 {
		sum ^= bits.RotateLeft64(s.reasons[e.Reason-1], 1)
	}
	c.line, c.next = e.Line, seen{sum, e.Line, where}
}
