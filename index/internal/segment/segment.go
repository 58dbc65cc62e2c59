package segment

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

	"blockd/index/internal/format"
	"blockd/index/internal/memory"
	"blockd/lists"
	"blockd/mail/addr"
)

// A segment is chunks of entries, then a description, then a tail of 40 octets: magic,
// u64 offset, length and XXH3-64 of the description, u64 number of entries. An entry
// is uvarint length of its key, the key, uvarint line, u8 flags, and by these the
// number of its reason among the source's and when it ends, in Unix seconds, as uvarints. A line's entries are in one chunk.
const (
	version   = 5
	chunkSize = 256 << 10
	tailSize  = 40
	maxMeta   = 1 << 30
)

var magic = []byte("BDXSEG\r\n")

// ErrDamaged reports a segment that is damaged. It is never the user's fault or
// concern: the source is read instead.
var ErrDamaged = errors.New("damaged segment")

// Segment is an open segment: the entries of one source as they were read. Hashes of
// keys are not in it: they are others at every build.
type Segment struct {
	Meta
	f      *os.File
	id     [16]byte
	chunks []span
	memo   memo // of the source that it was found for
}

// Meta is what a segment has of its source beside its entries.
type Meta struct {
	Counts
	Summary lists.Summary
	Reasons *Reasons
	Tests   []Test
}

// Counts are of the entries of a source.
type Counts struct {
	Kinds    uint64 // of keys, see addr.Key.KindBit
	Networks int
	Patterns int
	Free     int // patterns that are tried on every sender
	Steps    int // lists.Item.Steps of all
}

// Add takes in what another goroutine has counted.
func (c *Counts) Add(o Counts) {
	c.Kinds |= o.Kinds
	c.Networks += o.Networks
	c.Patterns += o.Patterns
	c.Free += o.Free
	c.Steps += o.Steps
}

// Test is one test of a source that its text has.
type Test struct {
	Row, Line int
	*lists.Test
}

// span is one chunk.
type span struct {
	offset, length int64
	entries        uint64
	sum            uint64
}

// Writer writes the segment of a source while several workers read that. A nil
// writer writes nothing.
type Writer struct {
	cache *Cache
	f     *os.File
	lanes []Lane
	memo  memo

	mu     sync.Mutex // guards what follows
	size   int64
	chunks []span
	err    error // the first one; nothing is written after it
}

// Lane collects what one worker reads.
type Lane struct {
	w       *Writer
	buf     []byte
	entries uint64
	line    int
	_       [64]byte // lanes are written by different cores
}

func newWriter(f *os.File, workers int) *Writer {
	w := &Writer{f: f, lanes: make([]Lane, workers)}
	for i := range w.lanes {
		w.lanes[i].w = w
	}
	return w
}

// Lane is where the i-th worker adds entries. nil: nowhere.
func (w *Writer) Lane(i int) *Lane {
	if w == nil {
		return nil
	}
	return &w.lanes[i]
}

// Add adds an entry, whose reason has its number within the source.
func (l *Lane) Add(key string, e format.Entry) {
	if len(l.buf) >= chunkSize && e.Line != l.line {
		l.flush()
	}
	l.line = e.Line
	l.buf = binary.AppendUvarint(l.buf, uint64(len(key)))
	l.buf = append(l.buf, key...)
	l.buf = binary.AppendUvarint(l.buf, uint64(e.Line))
	l.buf = append(l.buf, e.Flags())
	if e.Reason != 0 {
		l.buf = binary.AppendUvarint(l.buf, uint64(e.Reason-1))
	}
	if e.Expiry != 0 {
		l.buf = binary.AppendUvarint(l.buf, uint64(e.Expiry))
	}
	l.entries++
}

func (l *Lane) flush() {
	span := span{length: int64(len(l.buf)), entries: l.entries, sum: xxh3.Hash(l.buf)}
	span.offset = l.w.reserve(span)
	if span.offset >= 0 {
		_, err := l.w.f.WriteAt(l.buf, span.offset)
		l.w.failed(err)
	}
	l.buf, l.entries = l.buf[:0], 0
}

func (w *Writer) reserve(s span) (offset int64) {
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

func (w *Writer) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, err)
}

// finish writes the description. The workers have ended.
func (w *Writer) finish(id [16]byte, m Meta) error {
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
	tail := append([]byte(nil), magic...)
	for _, v := range []uint64{uint64(w.size), uint64(len(meta)), xxh3.Hash(meta), entries} {
		tail = binary.LittleEndian.AppendUint64(tail, v)
	}
	_, err := w.f.WriteAt(append(meta, tail...), w.size)
	return err
}

func (m *Meta) append(b []byte) []byte {
	s := m.Summary
	b = format.AppendText(b, s.Format, format.MaxText)
	b = format.AppendText(b, s.Why, format.MaxText)
	b = append(b, s.Hash[:]...)
	for _, n := range []int{int(s.Size), s.Lines, s.Entries, s.Errors, s.Skipped, m.Networks, m.Patterns, m.Free, m.Steps} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = format.AppendDropped(b, &s.Dropped)
	b = format.AppendAbout(b, &s.About)
	b = binary.LittleEndian.AppendUint64(b, m.Kinds)
	b = binary.AppendUvarint(b, uint64(m.Reasons.Len()))
	for i, at := range m.Reasons.first {
		b = format.AppendText(b, string(m.Reasons.table.Get(uint32(i))), format.MaxReason)
		b = binary.AppendUvarint(b, uint64(at.Line))
		b = binary.AppendUvarint(b, uint64(at.Seq))
	}
	b = binary.AppendUvarint(b, uint64(len(m.Tests)))
	for _, t := range m.Tests {
		b = binary.AppendUvarint(b, uint64(t.Line))
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

// read reads the description of the segment in f, which has this name.
func read(f *os.File, id [16]byte) (*Segment, error) {
	s, err := describe(f)
	if err == nil && s.id != id {
		return nil, ErrDamaged
	}
	return s, err
}

// OpenFile opens the segment in a file of its own, whatever its name is.
func OpenFile(path string) (*Segment, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := describe(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// ID names the content and how it was read, see idOf.
func (s *Segment) ID() [16]byte { return s.id }

// Sync has it on disk.
func (s *Segment) Sync() error { return s.f.Sync() }

// Entries is the number of entries.
func (s *Segment) Entries() (n uint64) {
	for _, c := range s.chunks {
		n += c.entries
	}
	return n
}

// describe reads the description of the segment in f.
func describe(f *os.File) (*Segment, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < tailSize {
		return nil, ErrDamaged
	}
	var tail [tailSize]byte
	if _, err := f.ReadAt(tail[:], info.Size()-tailSize); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	offset, length := le.Uint64(tail[8:]), le.Uint64(tail[16:])
	body := uint64(info.Size() - tailSize)
	if !bytes.Equal(tail[:8], magic) || offset > body || length != body-offset || length > maxMeta {
		return nil, ErrDamaged
	}
	b := make([]byte, length)
	if _, err := f.ReadAt(b, int64(offset)); err != nil {
		return nil, err
	}
	s := &Segment{f: f}
	c := format.Cursor{Rest: b}
	c.Bytes(s.id[:])
	if xxh3.Hash(b) != le.Uint64(tail[24:]) || !s.decode(&c) || !s.decodeChunks(&c, int64(offset)) || len(c.Rest) > 0 {
		return nil, ErrDamaged
	}
	return s, nil
}

// TestsOf are its self-tests as those of a row.
func (m *Meta) TestsOf(row int) []Test {
	tests := slices.Clone(m.Tests)
	for i := range tests {
		tests[i].Row = row
	}
	return tests
}

// Close closes the file.
func (s *Segment) Close() { s.f.Close() }

// decode reads a description whose sum is right.
func (m *Meta) decode(c *format.Cursor) bool {
	s := &m.Summary
	s.Verdict = lists.Loaded
	s.Format, s.Why = string(c.Text(format.MaxText)), string(c.Text(format.MaxText))
	c.Bytes(s.Hash[:])
	s.Size = int64(c.Uvarint(math.MaxInt64))
	for _, n := range []*int{&s.Lines, &s.Entries, &s.Errors, &s.Skipped, &m.Networks, &m.Patterns, &m.Free, &m.Steps} {
		*n = int(c.Uvarint(math.MaxInt))
	}
	s.Dropped = c.Dropped()
	s.About = c.About()
	m.Kinds = c.Uint64()
	m.Reasons = NewReasons()
	for range c.Uvarint(format.MaxReasons) {
		m.Reasons.table.Put(c.Text(format.MaxReason))
		m.Reasons.first = append(m.Reasons.first, Place{int(c.Uvarint(math.MaxInt)), int(c.Uvarint(math.MaxInt))})
		if c.Bad {
			return false
		}
	}
	for range c.Uvarint(math.MaxInt32) {
		t := Test{Line: int(c.Uvarint(math.MaxInt)), Test: &lists.Test{Block: c.Byte() == 1}}
		for range c.Uvarint(math.MaxInt32) {
			a, err := addr.Parse(string(c.Text(format.MaxPath)))
			if c.Bad || err != nil {
				return false
			}
			t.Senders = append(t.Senders, a)
		}
		m.Tests = append(m.Tests, t)
		if c.Bad {
			return false
		}
	}
	return !c.Bad
}

// decodeChunks reads where the chunks lie, in size octets.
func (s *Segment) decodeChunks(c *format.Cursor, size int64) bool {
	for range c.Uvarint(math.MaxInt32) {
		span := span{offset: int64(c.Uvarint(math.MaxInt64)), length: int64(c.Uvarint(math.MaxInt64)), entries: c.Uvarint(math.MaxInt64)}
		span.sum = c.Uint64()
		if c.Bad || span.offset > size || span.length > size-span.offset {
			return false
		}
		s.chunks = append(s.chunks, span)
	}
	return !c.Bad
}

// Octets is the size of all chunks.
func (s *Segment) Octets() (sum int64) {
	for _, c := range s.chunks {
		sum += c.length
	}
	return sum
}

// read reads a chunk whole, in place of what buf has.
func (s *Segment) read(span span, buf []byte) ([]byte, error) {
	buf = memory.Grow(buf[:0], int(span.length))
	if _, err := s.f.ReadAt(buf, span.offset); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if xxh3.Hash(buf) != span.sum {
		return nil, ErrDamaged
	}
	return buf, nil
}

// Chunk is a chunk in memory, which is read entry by entry.
type Chunk struct {
	format.Cursor
	reasons int // of the segment
}

// chunk begins to read the entries at b.
func (s *Segment) chunk(b []byte) Chunk {
	return Chunk{format.Cursor{Rest: b}, s.Reasons.Len()}
}

// Entry reads the next entry. Its reason has the number that it has in the segment.
func (c *Chunk) Entry() (key []byte, e format.Entry) {
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
	if flags&format.FlagExpiry != 0 {
		e.Expiry = int64(c.Uvarint(math.MaxInt64))
	}
	return key, e
}

// Each reads all chunks by so many workers, each of which gives its own to use, with
// the number of their entries. What use leaves of one, or has met as damage in it,
// makes the error ErrDamaged.
func (s *Segment) Each(ctx context.Context, workers int, use func(worker int, c *Chunk, entries uint64) error) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for worker := range workers {
		group.Go(func() (err error) {
			var buf []byte
			for n := int(next.Add(1)) - 1; n < len(s.chunks) && err == nil; n = int(next.Add(1)) - 1 {
				buf, err = s.useWhole(ctx, s.chunks[n], buf, worker, use)
			}
			return err
		})
	}
	return group.Wait()
}

// useWhole reads a chunk in place of what buf has, gives it to use, and returns the memory
// that it took.
func (s *Segment) useWhole(ctx context.Context, span span, buf []byte, worker int, use func(worker int, c *Chunk, entries uint64) error) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return buf, err
	}
	buf, err := s.read(span, buf)
	if err != nil {
		return buf, err
	}
	c := s.chunk(buf)
	if err := use(worker, &c, span.entries); err != nil {
		return buf, err
	}
	if c.Bad || len(c.Rest) > 0 {
		return buf, ErrDamaged
	}
	return buf, nil
}
