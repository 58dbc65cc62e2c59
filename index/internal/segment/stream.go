package segment

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"

	"blockd/index/internal/format"
)

// stream gives the entries of a segment in the order of their lines, and lets
// its reader look ahead. It takes a chunk of memory for each worker of the build
// that wrote the segment, and 24 octets for each entry looked ahead.
type stream struct {
	*Segment
	seed    uint64
	sums    []uint64     // of each reason
	waiting []streamed   // chunks that were not begun, the next one last
	open    []*openChunk // those that were: one or a few
	spare   [][]byte

	ahead []seen // from taken on: what was read and not taken
	taken int
	at    spot // of the last one that was taken
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
	span
	line int
}

// openChunk is a chunk that is being read.
type openChunk struct {
	Chunk
	streamed        // line is that of next
	next     seen   // the entry in hand
	left     uint64 // entries behind it
	buf      []byte
}

// stream begins to read the segment. Streams of one seed sum alike.
func (s *Segment) stream(seed uint64) (*stream, error) {
	t := &stream{Segment: s, seed: seed, at: spot{line: -1}}
	for i := range s.Reasons.Len() {
		t.sums = append(t.sums, xxh3.HashSeed(s.Reasons.table.Get(uint32(i)), seed))
	}
	head := make([]byte, format.MaxStored+32) // more than an entry has
	for _, span := range s.chunks {
		n, _ := s.f.ReadAt(head[:min(len(head), int(span.length))], span.offset)
		c := s.chunk(head[:n])
		_, e := c.Entry()
		if c.Bad || span.entries == 0 {
			return nil, ErrDamaged
		}
		t.waiting = append(t.waiting, streamed{span, e.Line})
	}
	slices.SortFunc(t.waiting, func(a, b streamed) int { return cmp.Compare(b.line, a.line) })
	return t, nil
}

// peek returns the next entries, n or more: fewer only at the end. They hold until
// the next call. After an error there are none.
func (s *stream) peek(n int) []seen {
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
func (s *stream) take(n int) {
	for _, e := range s.ahead[s.taken : s.taken+n] {
		s.at.pass(e.line)
	}
	s.taken += n
}

// spot is where an entry stands: its line, and its number among those of the line.
type spot struct{ line, number int }

// pass goes on to the next entry, which is of this line.
func (p *spot) pass(line int) {
	if line == p.line {
		p.number++
	} else {
		*p = spot{line, 0}
	}
}

// more reads entries of one chunk up to where another one has the next line. It is
// false at the end of all.
func (s *stream) more() bool {
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
func (s *stream) begin() bool {
	n := len(s.waiting) - 1
	if n < 0 {
		return false
	}
	c := &openChunk{streamed: s.waiting[n], left: s.waiting[n].entries}
	s.waiting = s.waiting[:n]
	if last := len(s.spare) - 1; last >= 0 {
		c.buf, s.spare = s.spare[last], s.spare[:last]
	}
	if c.buf, s.err = s.read(c.span, c.buf); s.err != nil {
		return false
	}
	c.Chunk = s.chunk(c.buf)
	s.open = append(s.open, c)
	s.step(c)
	return s.err == nil
}

// step decodes the next entry of a chunk.
func (s *stream) step(c *openChunk) {
	where := c.offset + int64(len(c.buf)-len(c.Rest))
	key, e := c.Entry()
	c.left--
	if c.Bad || e.Line < c.line || c.left == 0 && len(c.Rest) > 0 {
		s.err = ErrDamaged
		return
	}
	sum := xxh3.HashSeed(key, s.seed) + uint64(e.Action)<<32 + uint64(e.Scope)<<36
	if e.Reason != 0 {
		sum ^= bits.RotateLeft64(s.sums[e.Reason-1], 1)
	}
	sum += uint64(e.Expiry) * 0x9E3779B97F4A7C15 // odd, so that times apart stay apart (Knuth, 6.4)
	c.line, c.next = e.Line, seen{sum, e.Line, where}
}
