package index

import (
	"encoding/binary"
	"math/bits"

	"blockd/bloom"
)

// partitionBytes is a row of the directory.
const partitionBytes = 16

// partition is one row of the directory.
type partition struct {
	first           uint64 // page
	pages, overflow uint32
}

// all is the number of its pages, overflow pages included.
func (p partition) all() uint64 { return uint64(p.pages) + uint64(p.overflow) }

// directory says how the keys of a file are spread over its pages.
type directory struct {
	*header
	shift uint // bits of a hash that choose the partition
	parts []partition
}

// newDirectory has no partitions yet, but room for them.
func newDirectory(h *header) directory {
	return directory{header: h, shift: uint(bits.Len64(h.partitions) - 1), parts: make([]partition, h.partitions)}
}

// decode wants the partitions one behind the other and all pages theirs.
func (d *directory) decode(b []byte) error {
	at, next := d.sections[secDirectory].offset, uint64(0)
	for i := range d.parts {
		row := b[i*partitionBytes:]
		p := partition{binary.LittleEndian.Uint64(row), binary.LittleEndian.Uint32(row[8:]), binary.LittleEndian.Uint32(row[12:])}
		if p.first != next || p.pages == 0 && p.overflow > 0 {
			return corrupt(at+uint64(i*partitionBytes), "partition %d begins at page %d, want %d", i, p.first, next)
		}
		d.parts[i] = p
		next += p.all()
	}
	if next != d.pages {
		return corrupt(at, "partitions have %d pages, the header has %d", next, d.pages)
	}
	return nil
}

// append encodes the directory.
func (d *directory) append(b []byte) []byte {
	for _, p := range d.parts {
		b = binary.LittleEndian.AppendUint64(b, p.first)
		b = binary.LittleEndian.AppendUint32(b, p.pages)
		b = binary.LittleEndian.AppendUint32(b, p.overflow)
	}
	return b
}

// firstPage is the page that a key belongs to, and its partition, which has no
// keys if it has no pages.
func (d *directory) firstPage(h bloom.Hash) (number uint64, p partition) {
	p = d.parts[h.Hi>>(64-d.shift)]
	return p.first + pageOf(h.Hi, d.shift, uint64(p.pages)), p
}

// sumPage holds a page against its sum.
func (d *directory) sumPage(page page, number uint64) error {
	want := binary.LittleEndian.Uint32(page)
	if sum := page.sum(d.crcStart(), number); sum != want {
		return corrupt(d.pageOffset(number), "page sum %08x, computed %08x", want, sum)
	}
	return nil
}

// pageOffset is where a page lies in the file.
func (d *directory) pageOffset(number uint64) uint64 {
	return d.sections[secPages].offset + number*pageSize
}

// pageDamaged is the error of a page that contradicts itself or its place.
func (d *directory) pageDamaged(number uint64) error {
	return corrupt(d.pageOffset(number), "page %d does not hold together", number)
}
