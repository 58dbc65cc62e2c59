package segment

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"

	"github.com/klauspost/compress/zstd"

	"blockd/index/internal/format"
)

// What a source held before is kept as its difference from what it held next: the entries
// that must go from that, those that must come, and where the lines of the rest stood. A
// content that has too little in common with the next one is kept whole. Both are zstd, of
// which every block has a checksum, and what is made of them is a segment again.

const (
	deltaMagic = "BDXDLT1\n"

	// mostDelta bounds the entries that differ, and so the memory of a difference: some 50 MB.
	mostDelta = 500_000

	maxPacked = 1 << 36 // octets of a segment that is unpacked
	maxWindow = 64 << 20
)

// WriteDelta writes what makes the segment target of the segment base. ErrTooDifferent says that target
// is better packed whole.
func WriteDelta(ctx context.Context, w io.Writer, base, target *Segment) error {
	limit := min(int(target.Entries()/2)+16, mostDelta)
	seed := rand.Uint64()
	from, err := base.stream(seed)
	if err != nil {
		return err
	}
	to, err := target.stream(seed)
	if err != nil {
		return err
	}
	d, err := align(ctx, from, to, limit)
	if err != nil {
		return err
	}
	b := append([]byte(deltaMagic), base.id[:]...)
	b = append(b, target.id[:]...)
	b = binary.AppendUvarint(b, target.Entries())
	meta := target.Meta.append(nil)
	b = append(binary.AppendUvarint(b, uint64(len(meta))), meta...)
	b = binary.AppendUvarint(b, uint64(len(d.lines.from)))
	for i, from := range d.lines.from {
		b = binary.AppendVarint(binary.AppendUvarint(b, uint64(from)), int64(d.lines.by[i]))
	}
	b = binary.AppendUvarint(b, uint64(len(d.from)))
	last := 0
	for _, at := range d.from {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(at.line-last)), uint64(at.number))
		last = at.line
	}
	b = binary.AppendUvarint(b, uint64(len(d.come)))
	err = target.entriesAt(d.come, func(raw []byte) error {
		b = append(b, raw...)
		return nil
	})
	if err != nil {
		return err
	}
	return pack(w, bytes.NewReader(b))
}

// entriesAt gives the octets of the entries that stand at these places.
func (s *Segment) entriesAt(where []int64, use func(raw []byte) error) error {
	buf, at, n := make([]byte, 64<<10), int64(0), 0
	for _, w := range where {
		if w < at || w+format.MaxStored+64 > at+int64(n) { // more than an entry has
			at = w
			n, _ = s.f.ReadAt(buf, w) // the description behind the last chunk ends it before the file does
		}
		c := s.chunk(buf[w-at : n])
		all := len(c.Rest)
		c.Entry()
		if c.Bad {
			return ErrDamaged
		}
		if err := use(buf[w-at:][:all-len(c.Rest)]); err != nil {
			return err
		}
	}
	return nil
}

// Delta is a difference that was read.
type Delta struct {
	base, target [16]byte
	meta         Meta
	entries      uint64
	lines        LineMap
	gone         []spot // in their order
	come         []byte
	coming       uint64
}

// ReadDelta reads what WriteDelta has written.
func ReadDelta(r io.Reader) (*Delta, error) {
	z, err := unpacker(r)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	b, err := io.ReadAll(io.LimitReader(z, maxMeta))
	if err != nil || len(b) == maxMeta {
		return nil, damaged(err)
	}
	return parseDelta(b)
}

func parseDelta(b []byte) (*Delta, error) {
	if !bytes.HasPrefix(b, []byte(deltaMagic)) {
		return nil, ErrDamaged
	}
	d := &Delta{}
	c := format.Cursor{Rest: b[len(deltaMagic):]}
	c.Bytes(d.base[:])
	c.Bytes(d.target[:])
	d.entries = c.Uvarint(math.MaxInt64)
	n := c.Uvarint(uint64(len(c.Rest)))
	if c.Bad || n > uint64(len(c.Rest)) {
		return nil, ErrDamaged
	}
	meta := format.Cursor{Rest: c.Rest[:n]}
	c.Rest = c.Rest[n:]
	if !d.meta.decode(&meta) || len(meta.Rest) > 0 {
		return nil, ErrDamaged
	}
	last := -1
	for range c.Uvarint(maxLineShifts) {
		from := int(c.Uvarint(math.MaxInt))
		by, size := binary.Varint(c.Rest)
		if c.Bad || size <= 0 || from <= last || from > math.MaxInt-int(max(by, 0)) {
			return nil, ErrDamaged
		}
		c.Rest = c.Rest[size:]
		d.lines.from, d.lines.by = append(d.lines.from, from), append(d.lines.by, int(by))
		last = from
	}
	line := 0
	for range c.Uvarint(mostDelta) {
		by := int(c.Uvarint(math.MaxInt))
		if c.Bad || by > math.MaxInt-line {
			return nil, ErrDamaged
		}
		line += by
		d.gone = append(d.gone, spot{line, int(c.Uvarint(math.MaxInt))})
	}
	d.coming = c.Uvarint(mostDelta)
	if c.Bad {
		return nil, ErrDamaged
	}
	d.come = c.Rest
	return d, nil
}

// Apply writes the segment into f that the difference makes of base.
func (d *Delta) Apply(ctx context.Context, f *os.File, base *Segment, workers int) error {
	if d.base != base.id {
		return fmt.Errorf("%w: it is the difference from another content", ErrDamaged)
	}
	numbers, ok := d.reasons(base)
	w := newWriter(f, workers+1)
	var lost error
	err := base.Each(ctx, workers, func(i int, c *Chunk, entries uint64) error {
		lane, at, next := w.Lane(i), spot{line: -1}, -1
		for range entries {
			key, e := c.Entry()
			if c.Bad {
				return nil // which Each sees
			}
			if at.pass(e.Line); next < 0 {
				next = sort.Search(len(d.gone), func(k int) bool { return d.gone[k].line >= e.Line })
			}
			for next < len(d.gone) && d.gone[next].before(at) {
				next++
			}
			if next < len(d.gone) && d.gone[next] == at {
				continue
			}
			if e.Reason != 0 {
				if !ok[e.Reason-1] {
					return ErrDamaged
				}
				e.Reason = numbers[e.Reason-1] + 1
			}
			if e.Line = d.lines.Line(e.Line); e.Line < 0 {
				return ErrDamaged
			}
			lane.Add(string(key), e)
		}
		if len(lane.buf) > 0 {
			lane.flush() // the next chunk may be of lines before these
		}
		return nil
	})
	if err == nil {
		lane, c := w.Lane(workers), Chunk{format.Cursor{Rest: d.come}, d.meta.Reasons.Len()}
		for range d.coming {
			key, e := c.Entry()
			lane.Add(string(key), e)
		}
		if c.Bad || len(c.Rest) > 0 {
			lost = ErrDamaged
		}
	}
	if err := cmp.Or(err, lost); err != nil {
		return err
	}
	if err := w.finish(d.target, d.meta); err != nil {
		return err
	}
	var entries uint64
	for _, c := range w.chunks {
		entries += c.entries
	}
	if entries != d.entries {
		return ErrDamaged
	}
	return nil
}

func (p spot) before(o spot) bool {
	return p.line < o.line || p.line == o.line && p.number < o.number
}

// reasons are the numbers that the target has for the reasons of base; ok is false for those that it has not.
func (d *Delta) reasons(base *Segment) (numbers []uint32, ok []bool) {
	known := map[string]uint32{}
	for i := range d.meta.Reasons.Len() {
		known[d.meta.Reasons.Text(uint32(i))] = uint32(i)
	}
	numbers, ok = make([]uint32, base.Reasons.Len()), make([]bool, base.Reasons.Len())
	for i := range numbers {
		numbers[i], ok[i] = known[base.Reasons.Text(uint32(i))], false
		_, ok[i] = known[base.Reasons.Text(uint32(i))]
	}
	return numbers, ok
}

// Pack writes a segment whole, in less room.
func Pack(w io.Writer, s *Segment) error {
	info, err := s.f.Stat()
	if err != nil {
		return err
	}
	return pack(w, io.NewSectionReader(s.f, 0, info.Size()))
}

func pack(w io.Writer, r io.Reader) error {
	// One goroutine and little memory: nobody waits for it.
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20))
	if err != nil {
		return err
	}
	_, err = io.Copy(z, r)
	return errors.Join(err, z.Close())
}

func unpacker(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
}

// Unpack is the way back from Pack, into f.
func Unpack(f *os.File, r io.Reader) error {
	z, err := unpacker(r)
	if err != nil {
		return err
	}
	defer z.Close()
	n, err := io.Copy(f, io.LimitReader(z, maxPacked))
	if errors.As(err, new(*os.PathError)) {
		return err
	}
	if err != nil || n == maxPacked {
		return damaged(err)
	}
	return nil
}

func damaged(err error) error {
	if err == nil {
		return ErrDamaged
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// Check reads all chunks, and so finds every octet that has changed.
func (s *Segment) Check(ctx context.Context) error {
	return s.Each(ctx, 1, func(_ int, c *Chunk, entries uint64) error {
		for range entries {
			c.Entry()
		}
		return nil
	})
}

// byLine are the chunks in the order of their first lines.
func (s *Segment) byLine() ([]span, error) {
	t, err := s.stream(0)
	if err != nil {
		return nil, err
	}
	all := make([]span, len(t.waiting))
	for i, c := range t.waiting {
		all[len(all)-1-i] = c.span
	}
	return slices.Clip(all), nil
}
