package index

import (
	"bytes"
	"fmt"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/index/internal/segment"
)

const (
	// maxOverlayKeys bounds an overlay. Its keys cost 40 octets of memory and their
	// entries; what is more is better off in a file.
	maxOverlayKeys  = 100_000
	maxOverlayBytes = 64 << 20 // of its records

	// overlayBitsPerKey gives 0.03 % false positives: each would be a needless look
	// into the store, and so few keys take 250 KB at most.
	overlayBitsPerKey = 20
)

// overlay is what an index says of some keys in place of its file: all entries of
// all rows, or that there are none. Of every other key the file says it, with the
// lines moved. It lies in memory and never changes.
//
// Whoever was not asked for passes one more filter, which is small enough to stay
// in a core's cache.
type overlay struct {
	base    *Index // the file alone; who holds the overlay holds its mapping
	filter  *bloom.Filter
	slots   []overlaySlot // a power of two of them, half empty at least
	keys    int
	records []byte                 // as in pages; one without entries has a 0 for their number
	reasons []byte                 // of the records, as section 6
	lines   []segment.LineMap      // by row
	rows    map[int]segment.Change // that differ from the base, and their tests: the next update need not look for them again
	tests   []segment.Test
}

// overlaySlot is where the record of a key lies. The table is asked by linear
// probing from the key's place on.
type overlaySlot struct {
	tag uint32 // of the key's hash
	at  uint32 // 1 + offset in records; 0: empty
}

func slotOf(h bloom.Hash) (place uint64, tag uint32) { return h.Hi, uint32(h.Lo >> 32) }

// find looks for the first key of hash h that is what is wanted. known: the overlay
// speaks for it; listed: it has entries. The cursor stands behind the record's key.
func (o *overlay) find(h bloom.Hash, wanted func(key []byte) bool) (r record, listed, known bool) {
	place, tag := slotOf(h)
	mask := uint64(len(o.slots) - 1)
	for i := place & mask; o.slots[i].at != 0; i = (i + 1) & mask {
		if o.slots[i].tag != tag {
			continue
		}
		r := o.record(o.slots[i])
		if wanted(r.Key()) {
			return r, r.Rest[0] != 0, true
		}
	}
	return record{}, false, false
}

// record begins to read the record of a slot that is not empty.
func (o *overlay) record(s overlaySlot) record {
	return record{format.Cursor{Rest: o.records[s.at-1:]}, true}
}

// speaksFor reports whether the overlay has a record of key.
func (o *overlay) speaksFor(key []byte) bool {
	h := o.base.file.Hash.Sum(key)
	if !o.filter.Has(h) {
		return false
	}
	_, _, known := o.find(h, func(stored []byte) bool { return bytes.Equal(stored, key) })
	return known
}

// record is a record that is being read, of the file or of the overlay.
type record struct {
	format.Cursor
	over bool // of the overlay
}

// present makes of an entry of a record what its source says now, and
// returns the section that its reason is in.
func (ix *Index) present(r *record, e *format.Entry) (reasons []byte) {
	switch {
	case r.over:
		return ix.overlay.reasons
	case ix.overlay != nil && e.Row < len(ix.overlay.lines):
		e.Line = ix.overlay.lines[e.Row].Line(e.Line)
	}
	return ix.reasons
}

// overlayBuilder collects the records of an overlay.
type overlayBuilder struct {
	hash    format.Hasher
	hashes  []bloom.Hash
	at      []uint32 // of each record
	records []byte
	reasons format.ReasonTable
	entries []format.Entry // reused
}

func newOverlayBuilder(h format.Hasher) *overlayBuilder {
	return &overlayBuilder{hash: h, reasons: format.NewReasonTable()}
}

// put gives a key, which it has not got, its entries: in the order of rows and of
// lines, each row's scope and action once, at most format.MaxSources.
func (b *overlayBuilder) put(key string, all []segment.Said) error {
	if len(b.at) == maxOverlayKeys || len(b.records) > maxOverlayBytes {
		return fmt.Errorf("more than %d keys, or %d octets of their entries", maxOverlayKeys, maxOverlayBytes)
	}
	b.entries = b.entries[:0]
	for _, s := range all {
		e := s.Entry
		e.Reason = 0
		if s.Text != "" {
			number, ok := b.reasons.Add(s.Text)
			if !ok {
				return fmt.Errorf("more than %d different reasons", format.MaxReasons)
			}
			e.Reason = number + 1
		}
		b.entries = append(b.entries, e)
	}
	b.hashes = append(b.hashes, b.hash.SumText(key))
	b.at = append(b.at, uint32(len(b.records)))
	b.records = format.AppendRecord(b.records, []byte(key), b.entries, false)
	return nil
}

// overlay ends the building.
func (b *overlayBuilder) overlay(base *Index, lines []segment.LineMap) *overlay {
	size := 1
	for size < 2*len(b.at)+1 {
		size *= 2
	}
	filter := bloom.NewBuilder(uint64(len(b.at)), overlayBitsPerKey)
	filter.AddBatch(b.hashes)
	var reasons bytes.Buffer
	b.reasons.EncodeTo(&reasons) // a Buffer fails by panic alone
	o := &overlay{base: base, filter: filter.Filter(), slots: make([]overlaySlot, size), keys: len(b.at),
		records: b.records, reasons: reasons.Bytes(), lines: lines}
	for n, h := range b.hashes {
		place, tag := slotOf(h)
		i := place & uint64(size-1)
		for o.slots[i].at != 0 {
			i = (i + 1) & uint64(size-1)
		}
		o.slots[i] = overlaySlot{tag, 1 + b.at[n]}
	}
	return o
}

// bytes is about what the overlay takes of memory.
func (o *overlay) bytes() int64 {
	n := int64(32*o.filter.Blocks()) + int64(8*len(o.slots)+len(o.records)+len(o.reasons))
	for _, m := range o.lines {
		n += m.Bytes()
	}
	return n
}

// index returns an index that shares the file of the base, with o in front of it. Its
// table, counts and generation are the caller's to set.
func (o *overlay) index() *Index {
	base := o.base
	ix := &Index{mapping: base.mapping, file: base.file, pages: base.pages, usual: base.usual, reasons: base.reasons,
		patterns: base.patterns, summed: base.summed, overlay: o}
	head := *base.file.Header
	ix.file.Header = &head
	f := &base.filter
	ix.filter.mapped, ix.filter.mem, ix.filter.at, ix.filter.sums, ix.filter.good = f.mapped, f.mem, f.at, f.sums, f.good
	ix.filter.near.Store(f.near.Load())
	return ix
}
