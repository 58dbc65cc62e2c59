package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"blockd/addr"
	"blockd/index/internal/format"
	"blockd/index/internal/memory"
	"blockd/lists"
)

// A segment is chunks of entries, then a description, then a tail of 40 octets: magic,
// u64 offset, length and XXH3-64 of the description, u64 number of entries. An entry
// is uvarint length of its key, the key, uvarint line, u8 flags, and the number of
// its reason among the source's as uvarint. A line's entries are in one chunk.
const (
	segmentVersion = 2
	segmentChunk   = 256 << 10
	segmentTail    = 40
	maxSegmentMeta = 1 << 30
)

var segmentMagic = []byte("BDXSEG\r\n")

// errSegment reports a segment that is damaged. It is never the user's fault or
// concern: the source is read instead.
var errSegment = errors.New("damaged segment")

// segment is an open segment: the entries of one source as they were read. Hashes of
// keys are not in it: they are others at every build.
type segment struct {
	segmentMeta
	f      *os.File
	chunks []segmentSpan
	memo   memo // of the source that it was found for
}

// segmentMeta is what a segment has of its source beside its entries.
type segmentMeta struct {
	counts
	summary lists.Summary
	reasons *sourceReasons
	tests   []selfTest
}

// counts are of the entries of a source.
type counts struct {
	kinds    uint64 // of keys, see format.KindBit
	networks int
	patterns int
	free     int // patterns that are tried on every sender
}

func (c *counts) add(o counts) {
	c.kinds |= o.kinds
	c.networks += o.networks
	c.patterns += o.patterns
	c.free += o.free
}

// selfTest is one test of a source that its text has.
type selfTest struct {
	row, line int
	*lists.Test
}

// segmentSpan is one chunk.
type segmentSpan struct {
	offset, length int64
	entries        uint64
	sum            uint64
}

// segmentWriter writes the segment of a source while several workers read that. A nil
// writer writes nothing.
type segmentWriter struct {
	cache *cache
	f     *os.File
	lanes []segmentLane
	memo  memo

	mu     sync.Mutex // guards what follows
	size   int64
	chunks []segmentSpan
	err    error // the first one; nothing is written after it
}

// segmentLane collects what one worker reads.
type segmentLane struct {
	w       *segmentWriter
	buf     []byte
	entries uint64
	line    int
	_       [64]byte // lanes are written by different cores
}

func newSegmentWriter(f *os.File, workers int) *segmentWriter {
	w := &segmentWriter{f: f, lanes: make([]segmentLane, workers)}
	for i := range w.lanes {
		w.lanes[i].w = w
	}
	return w
}

// lane is where the i-th worker adds entries. nil: nowhere.
func (w *segmentWriter) lane(i int) *segmentLane {
	if w == nil {
		return nil
	}
	return &w.lanes[i]
}

// add adds an entry, whose reason has its number within the source.
func (l *segmentLane) add(key string, e format.Entry) {
	if len(l.buf) >= segmentChunk && e.Line != l.line {
		l.flush()
	}
	l.line = e.Line
	l.buf = binary.AppendUvarint(l.buf, uint64(len(key)))
	l.buf = append(l.buf, key...)
	l.buf = binary.AppendUvarint(l.buf, uint64(e.Line))
	flags := format.Asks(e.Action, e.Scope)
	if e.Reason == 0 {
		l.buf = append(l.buf, flags)
	} else {
		l.buf = binary.AppendUvarint(append(l.buf, flags|format.FlagReason), uint64(e.Reason-1))
	}
	l.entries++
}

func (l *segmentLane) flush() {
	span := segmentSpan{length: int64(len(l.buf)), entries: l.entries, sum: xxh3.Hash(l.buf)}
	span.offset = l.w.reserve(span)
	if span.offset >= 0 {
		_, err := l.w.f.WriteAt(l.buf, span.offset)
		l.w.failed(err)
	}
	l.buf, l.entries = l.buf[:0], 0
}

func (w *segmentWriter) reserve(s segmentSpan) (offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return -1
	}
	s.offset = w.size
	w.size += s.length
	w.chunks = append(w.chunks, s)
	return s.offset
}

func (w *segmentWriter) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, err)
}

// finish writes the description. The workers have ended.
func (w *segmentWriter) finish(id [16]byte, m segmentMeta) error {
	entries := uint64(0)
	for i := range w.lanes {
		if len(w.lanes[i].buf) > 0 {
			w.lanes[i].flush()
		}
	}
	for _, c := range w.chunks {
		entries += c.entries
	}
	meta := m.append(append([]byte(nil), id[:]...))
	meta = binary.AppendUvarint(meta, uint64(len(w.chunks)))
	for _, c := range w.chunks {
		for _, v := range []uint64{uint64(c.offset), uint64(c.length), c.entries} {
			meta = binary.AppendUvarint(meta, v)
		}
		meta = binary.LittleEndian.AppendUint64(meta, c.sum)
	}
	if w.err != nil {
		return w.err
	}
	tail := append([]byte(nil), segmentMagic...)
	for _, v := range []uint64{uint64(w.size), uint64(len(meta)), xxh3.Hash(meta), entries} {
		tail = binary.LittleEndian.AppendUint64(tail, v)
	}
	_, err := w.f.WriteAt(append(meta, tail...), w.size)
	return err
}

func (m *segmentMeta) append(b []byte) []byte {
	s := m.summary
	b = format.AppendText(b, s.Format, format.MaxText)
	b = format.AppendText(b, s.Why, format.MaxText)
	b = append(b, s.Hash[:]...)
	for _, n := range []int{int(s.Size), s.Lines, s.Entries, s.Errors, s.Skipped, m.networks, m.patterns, m.free} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = format.AppendDropped(b, &s.Dropped)
	b = binary.LittleEndian.AppendUint64(b, m.kinds)
	b = binary.AppendUvarint(b, uint64(m.reasons.len()))
	for i, at := range m.reasons.first {
		b = format.AppendText(b, string(m.reasons.table.Get(uint32(i))), format.MaxReason)
		b = binary.AppendUvarint(b, uint64(at.line))
		b = binary.AppendUvarint(b, uint64(at.seq))
	}
	b = binary.AppendUvarint(b, uint64(len(m.tests)))
	for _, t := range m.tests {
		b = binary.AppendUvarint(b, uint64(t.line))
		b = append(b, bit(t.Block))
		b = binary.AppendUvarint(b, uint64(len(t.Senders)))
		for _, a := range t.Senders {
			b = format.AppendText(b, a.String(), format.MaxPath)
		}
	}
	return b
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// readSegment reads the description of the segment in f, which has this name.
func readSegment(f *os.File, id [16]byte) (*segment, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < segmentTail {
		return nil, errSegment
	}
	var tail [segmentTail]byte
	if _, err := f.ReadAt(tail[:], info.Size()-segmentTail); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	offset, length := le.Uint64(tail[8:]), le.Uint64(tail[16:])
	body := uint64(info.Size() - segmentTail)
	if !bytes.Equal(tail[:8], segmentMagic) || offset > body || length != body-offset || length > maxSegmentMeta {
		return nil, errSegment
	}
	b := make([]byte, length)
	if _, err := f.ReadAt(b, int64(offset)); err != nil {
		return nil, err
	}
	s := &segment{f: f}
	c := format.Cursor{Rest: b}
	var named [16]byte
	c.Bytes(named[:])
	if xxh3.Hash(b) != le.Uint64(tail[24:]) || !s.decode(&c) || !s.decodeChunks(&c, int64(offset)) || len(c.Rest) > 0 || named != id {
		return nil, errSegment
	}
	return s, nil
}

// testsOf are its self-tests as those of a row.
func (m *segmentMeta) testsOf(row int) []selfTest {
	tests := slices.Clone(m.tests)
	for i := range tests {
		tests[i].row = row
	}
	return tests
}

// close closes the file.
func (s *segment) close() { s.f.Close() }

// decode reads a description whose sum is right.
func (m *segmentMeta) decode(c *format.Cursor) bool {
	s := &m.summary
	s.Verdict = lists.Loaded
	s.Format, s.Why = string(c.Text(format.MaxText)), string(c.Text(format.MaxText))
	c.Bytes(s.Hash[:])
	s.Size = int64(c.Uvarint(math.MaxInt64))
	for _, n := range []*int{&s.Lines, &s.Entries, &s.Errors, &s.Skipped, &m.networks, &m.patterns, &m.free} {
		*n = int(c.Uvarint(math.MaxInt))
	}
	s.Dropped = c.Dropped()
	m.kinds = c.Uint64()
	m.reasons = newSourceReasons()
	for range c.Uvarint(format.MaxReasons) {
		m.reasons.table.Put(c.Text(format.MaxReason))
		m.reasons.first = append(m.reasons.first, place{int(c.Uvarint(math.MaxInt)), int(c.Uvarint(math.MaxInt))})
		if c.Bad {
			return false
		}
	}
	for range c.Uvarint(math.MaxInt32) {
		t := selfTest{line: int(c.Uvarint(math.MaxInt)), Test: &lists.Test{Block: c.Byte() == 1}}
		for range c.Uvarint(math.MaxInt32) {
			a, err := addr.Parse(string(c.Text(format.MaxPath)))
			if c.Bad || err != nil {
				return false
			}
			t.Senders = append(t.Senders, a)
		}
		m.tests = append(m.tests, t)
		if c.Bad {
			return false
		}
	}
	return !c.Bad
}

// decodeChunks reads where the chunks lie, in size octets.
func (s *segment) decodeChunks(c *format.Cursor, size int64) bool {
	for range c.Uvarint(math.MaxInt32) {
		span := segmentSpan{offset: int64(c.Uvarint(math.MaxInt64)), length: int64(c.Uvarint(math.MaxInt64)), entries: c.Uvarint(math.MaxInt64)}
		span.sum = c.Uint64()
		if c.Bad || span.offset > size || span.length > size-span.offset {
			return false
		}
		s.chunks = append(s.chunks, span)
	}
	return !c.Bad
}

// octets is the size of all chunks.
func (s *segment) octets() (sum int64) {
	for _, c := range s.chunks {
		sum += c.length
	}
	return sum
}

// read reads a chunk whole, in place of what buf has.
func (s *segment) read(span segmentSpan, buf []byte) ([]byte, error) {
	buf = memory.Grow(buf[:0], int(span.length))
	if _, err := s.f.ReadAt(buf, span.offset); err != nil {
		return nil, fmt.Errorf("%w: %w", errSegment, err)
	}
	if xxh3.Hash(buf) != span.sum {
		return nil, errSegment
	}
	return buf, nil
}

// chunk is a chunk in memory, which is read entry by entry.
type chunk struct {
	format.Cursor
	reasons int // of the segment
}

// chunk begins to read the entries at b.
func (s *segment) chunk(b []byte) chunk {
	return chunk{format.Cursor{Rest: b}, s.reasons.len()}
}

// entry reads the next entry. Its reason has the number that it has in the segment.
func (c *chunk) entry() (key []byte, e format.Entry) {
	key = c.Key()
	e.Line = int(c.Uvarint(math.MaxInt))
	flags := c.Byte()
	e.Action, e.Scope = format.Asked(flags)
	if e.Action > lists.AllowIfAuth {
		c.Fail()
	}
	if flags&format.FlagReason != 0 {
		e.Reason = uint32(c.Uvarint(uint64(c.reasons-1))) + 1
	}
	return key, e
}

// each reads all chunks by so many workers, each of which gives its own to use, with
// the number of their entries. What use leaves of one, or has met as damage in it,
// makes the error errSegment.
func (s *segment) each(ctx context.Context, workers int, use func(worker int, c *chunk, entries uint64) error) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for i := range workers {
		group.Go(func() error {
			var buf []byte
			for {
				n := int(next.Add(1)) - 1
				if n >= len(s.chunks) {
					return nil
				}
				err := ctx.Err()
				if err != nil {
					return err
				}
				if buf, err = s.read(s.chunks[n], buf); err != nil {
					return err
				}
				c := s.chunk(buf)
				if err := use(i, &c, s.chunks[n].entries); err != nil {
					return err
				}
				if c.Bad || len(c.Rest) > 0 {
					return errSegment
				}
			}
		})
	}
	return group.Wait()
}
