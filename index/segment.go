package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"blockd/addr"
	"blockd/index/internal/format"
	"blockd/index/internal/memory"
	"blockd/lists"
)

// A segment is the entries of one source as they were read, in a file, so that the
// source need not be parsed again. Hashes of keys are not in it: they are others at
// every build.
//
// It is chunks of entries, then a description, then a tail of 40 octets: magic,
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

// segmentWriter writes the segment of a source while several workers read that.
type segmentWriter struct {
	f     *os.File
	lanes []segmentLane

	mu     sync.Mutex // guards what follows
	size   int64
	chunks []segmentSpan
	err    error // the first one; nothing is written after it
}

// segmentSpan is one chunk.
type segmentSpan struct {
	offset, length int64
	entries        uint64
	sum            uint64
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

// segmentMeta is what a segment has of its source beside its entries.
type segmentMeta struct {
	id       [16]byte // the segment's name
	summary  lists.Summary
	counts   rowCounts
	networks int
	reasons  *sourceReasons
	tests    []rowTest
	chunks   []segmentSpan
}

// finish writes the description. The workers have ended.
func (w *segmentWriter) finish(m segmentMeta) error {
	entries := uint64(0)
	for i := range w.lanes {
		if len(w.lanes[i].buf) > 0 {
			w.lanes[i].flush()
		}
	}
	m.chunks = w.chunks
	for _, c := range w.chunks {
		entries += c.entries
	}
	meta := m.append(nil)
	offset := w.size
	if w.err != nil {
		return w.err
	}
	tail := append([]byte(nil), segmentMagic...)
	for _, v := range []uint64{uint64(offset), uint64(len(meta)), xxh3.Hash(meta), entries} {
		tail = binary.LittleEndian.AppendUint64(tail, v)
	}
	_, err := w.f.WriteAt(append(meta, tail...), offset)
	return err
}

func (m *segmentMeta) append(b []byte) []byte {
	b = append(b, m.id[:]...)
	s := m.summary
	b = format.AppendText(b, s.Format, format.MaxText)
	b = format.AppendText(b, s.Why, format.MaxText)
	b = append(b, s.Hash[:]...)
	for _, n := range []int{int(s.Size), s.Lines, s.Entries, s.Errors, s.Skipped, m.networks, m.counts.patterns, m.counts.freePatterns} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = format.AppendDropped(b, &s.Dropped)
	b = binary.LittleEndian.AppendUint64(b, m.counts.kinds)
	b = binary.AppendUvarint(b, uint64(len(m.reasons.first)))
	for i, at := range m.reasons.first {
		b = format.AppendText(b, string(m.reasons.table.Get(uint32(i))), format.MaxReason)
		b = binary.AppendUvarint(b, uint64(at.line))
		b = binary.AppendUvarint(b, uint64(at.seq))
	}
	b = binary.AppendUvarint(b, uint64(len(m.tests)))
	for _, t := range m.tests {
		b = binary.AppendUvarint(b, uint64(t.line))
		b = append(b, byte(bit(t.Block)))
		b = binary.AppendUvarint(b, uint64(len(t.Senders)))
		for _, a := range t.Senders {
			b = format.AppendText(b, a.String(), format.MaxPath)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(m.chunks)))
	for _, c := range m.chunks {
		for _, v := range []uint64{uint64(c.offset), uint64(c.length), c.entries} {
			b = binary.AppendUvarint(b, v)
		}
		b = binary.LittleEndian.AppendUint64(b, c.sum)
	}
	return b
}

// readSegmentMeta reads the description of the segment in f, which has this name.
func readSegmentMeta(f *os.File, id [16]byte) (*segmentMeta, error) {
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
	m := &segmentMeta{}
	c := format.Cursor{Rest: b}
	if xxh3.Hash(b) != le.Uint64(tail[24:]) || !m.decode(&c, int64(offset)) || len(c.Rest) > 0 || m.id != id {
		return nil, errSegment
	}
	return m, nil
}

// decode reads a description whose sum is right, of chunks in size octets.
func (m *segmentMeta) decode(c *format.Cursor, size int64) bool {
	c.Bytes(m.id[:])
	s := &m.summary
	s.Verdict = lists.Loaded
	s.Format, s.Why = string(c.Text(format.MaxText)), string(c.Text(format.MaxText))
	c.Bytes(s.Hash[:])
	s.Size = int64(c.Uvarint(math.MaxInt64))
	for _, n := range []*int{&s.Lines, &s.Entries, &s.Errors, &s.Skipped, &m.networks, &m.counts.patterns, &m.counts.freePatterns} {
		*n = int(c.Uvarint(math.MaxInt))
	}
	s.Dropped = c.Dropped()
	m.counts.kinds = c.Uint64()
	reasons := newSourceReasons()
	m.reasons = &reasons
	for range c.Uvarint(format.MaxReasons) {
		reasons.table.Put(c.Text(format.MaxReason))
		reasons.first = append(reasons.first, place{int(c.Uvarint(math.MaxInt)), int(c.Uvarint(math.MaxInt))})
		if c.Bad {
			return false
		}
	}
	for range c.Uvarint(math.MaxInt32) {
		t := rowTest{line: int(c.Uvarint(math.MaxInt)), Test: &lists.Test{Block: c.Byte() == 1}}
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
	for range c.Uvarint(math.MaxInt32) {
		span := segmentSpan{offset: int64(c.Uvarint(math.MaxInt64)), length: int64(c.Uvarint(math.MaxInt64)), entries: c.Uvarint(math.MaxInt64)}
		span.sum = c.Uint64()
		if c.Bad || span.offset > size || span.length > size-span.offset {
			return false
		}
		m.chunks = append(m.chunks, span)
	}
	return !c.Bad
}

// feed takes the entries of a segment in, as those of the row in hand.
func (in *intake) feed(ctx context.Context, f *os.File, m *segmentMeta, report func(c segmentSpan)) error {
	r := &in.rows[in.workers[0].row]
	r.reasons = *m.reasons
	r.rowCounts = m.counts
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for i := range in.workers {
		group.Go(func() error {
			var buf []byte
			for {
				n := int(next.Add(1)) - 1
				if n >= len(m.chunks) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				c := m.chunks[n]
				buf = memory.Grow(buf[:0], int(c.length))
				if _, err := f.ReadAt(buf, c.offset); err != nil {
					return fmt.Errorf("%w: %w", errSegment, err)
				}
				if xxh3.Hash(buf) != c.sum {
					return errSegment
				}
				if err := in.workers[i].feed(buf, c.entries, len(m.reasons.first)); err != nil {
					return err
				}
				report(c)
			}
		})
	}
	return group.Wait()
}

// feed takes the entries of one chunk in.
func (w *worker) feed(chunk []byte, entries uint64, reasons int) error {
	c := format.Cursor{Rest: chunk}
	for range entries {
		key := c.Key()
		e := format.Entry{Row: w.row, Line: int(c.Uvarint(math.MaxInt))}
		flags := c.Byte()
		e.Action, e.Scope = format.Asked(flags)
		if flags&format.FlagReason != 0 {
			e.Reason = uint32(c.Uvarint(uint64(reasons-1))) + 1
		}
		if c.Bad {
			return errSegment
		}
		// The text lives for the call alone.
		if err := w.store(unsafe.String(unsafe.SliceData(key), len(key)), e); err != nil {
			return err
		}
	}
	if len(c.Rest) > 0 {
		return errSegment
	}
	return nil
}
