package index

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"os"
	"slices"

	"github.com/zeebo/xxh3"
)

// segmentEntry decodes one entry of a segment with so many reasons. Its reason has
// the number that it has there.
func segmentEntry(c *cursor, reasons int) (key []byte, e entry) {
	key = c.key()
	e.line = int(c.uvarint(math.MaxInt))
	flags := c.byte()
	e.action, e.scope = asked(flags)
	if flags&flagReason != 0 {
		e.reason = uint32(c.uvarint(uint64(reasons-1))) + 1
	}
	return key, e
}

// chunk reads a chunk whole, in place of what buf has.
func (s segmentSpan) chunk(f *os.File, buf []byte) ([]byte, error) {
	buf = grow(buf[:0], int(s.length))
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
	cursor
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
		s.reasons = append(s.reasons, xxh3.HashSeed(m.reasons.table.get(uint32(i)), seed))
	}
	head := make([]byte, maxStored+32) // more than an entry has
	for _, span := range m.chunks {
		n, _ := f.ReadAt(head[:min(len(head), int(span.length))], span.offset)
		c := cursor{rest: head[:n]}
		_, e := segmentEntry(&c, len(s.reasons))
		if c.bad || span.entries == 0 {
			return nil, errSegment
		}
		s.waiting = append(s.waiting, streamed{span, e.line})
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
	c.rest = c.buf
	s.open = append(s.open, c)
	s.step(c)
	return s.err == nil
}

// step decodes the next entry of a chunk.
func (s *segmentStream) step(c *openChunk) {
	where := c.offset + int64(len(c.buf)-len(c.rest))
	key, e := segmentEntry(&c.cursor, len(s.reasons))
	c.left--
	if c.bad || e.line < c.line || c.left == 0 && len(c.rest) > 0 {
		s.err = errSegment
		return
	}
	sum := xxh3.HashSeed(key, s.seed) + uint64(e.action)<<32 + uint64(e.scope)<<36
	if e.reason != 0 {
		sum ^= bits.RotateLeft64(s.reasons[e.reason-1], 1)
	}
	c.line, c.next = e.line, seen{sum, e.line, where}
}
