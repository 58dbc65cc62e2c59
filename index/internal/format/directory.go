package format

import (
	"encoding/binary"
	"math/bits"

	"blockd/bloom"
)

// PartitionBytes is a row of the directory.
const PartitionBytes = 16

// Partition is one row of the directory.
type Partition struct {
	First           uint64 // page
	Pages, Overflow uint32
}

// All is the number of its pages, overflow pages included.
func (p Partition) All() uint64 { return uint64(p.Pages) + uint64(p.Overflow) }

// Directory says how the keys of a file are spread over its pages.
type Directory struct {
	*Header
	Shift uint // bits of a hash that choose the partition
	Parts []Partition
}

// NewDirectory has no partitions yet, but room for them.
func NewDirectory(h *Header) Directory {
	return Directory{Header: h, Shift: uint(bits.Len64(h.Partitions) - 1), Parts: make([]Partition, h.Partitions)}
}

// decode wants the partitions one behind the other and all pages theirs.
func (d *Directory) decode(b []byte) error {
	at, next := d.Sections[SecDirectory].Offset, uint64(0)
	for i := range d.Parts {
		row := b[i*PartitionBytes:]
		p := Partition{binary.LittleEndian.Uint64(row), binary.LittleEndian.Uint32(row[8:]), binary.LittleEndian.Uint32(row[12:])}
		if p.First != next || p.Pages == 0 && p.Overflow > 0 {
			return Corrupt(at+uint64(i*PartitionBytes), "partition %d begins at page %d, want %d", i, p.First, next)
		}
		d.Parts[i] = p
		next += p.All()
	}
	if next != d.Pages {
		return Corrupt(at, "partitions have %d pages, the header has %d", next, d.Pages)
	}
	return nil
}

// Append encodes the directory.
func (d *Directory) Append(b []byte) []byte {
	for _, p := range d.Parts {
		b = binary.LittleEndian.AppendUint64(b, p.First)
		b = binary.LittleEndian.AppendUint32(b, p.Pages)
		b = binary.LittleEndian.AppendUint32(b, p.Overflow)
	}
	return b
}

// FirstPage is the page that a key belongs to, and its partition, which has no
// keys if it has no pages.
func (d *Directory) FirstPage(h bloom.Hash) (number uint64, p Partition) {
	p = d.Parts[h.Hi>>(64-d.Shift)]
	return p.First + PageOf(h.Hi, d.Shift, uint64(p.Pages)), p
}

// SumPage holds a page against its sum.
func (d *Directory) SumPage(page Page, number uint64) error {
	want := binary.LittleEndian.Uint32(page)
	if sum := page.Sum(d.SumStart(), number); sum != want {
		return Corrupt(d.PageOffset(number), "page sum %08x, computed %08x", want, sum)
	}
	return nil
}

// PageOffset is where a page lies in the file.
func (d *Directory) PageOffset(number uint64) uint64 {
	return d.Sections[SecPages].Offset + number*PageSize
}

// PageDamaged is the error of a page that contradicts itself or its place.
func (d *Directory) PageDamaged(number uint64) error {
	return Corrupt(d.PageOffset(number), "page %d does not hold together", number)
}
