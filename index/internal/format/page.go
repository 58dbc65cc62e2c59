package format

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

const (
	pageHead  = 16 // bytes before the slots
	SlotBytes = 4  // a record's tag and offset
	PageRoom  = PageSize - pageHead

	// MaxOverflow bounds what one look-up can cost: five pages. With honest keys
	// at the default fill a page has none or one.
	MaxOverflow = 4
)

// Page is one page of the store. It comes from the file: callers check bounds.
type Page []byte

// Records, Next, Tag and Offset are its fields as docs/index-format.md has them.
func (p Page) Records() int     { return int(binary.LittleEndian.Uint16(p[4:])) }
func (p Page) Next() uint32     { return binary.LittleEndian.Uint32(p[8:]) }
func (p Page) tag(i int) uint16 { return binary.LittleEndian.Uint16(p[pageHead+SlotBytes*i:]) }
func (p Page) Offset(i int) int {
	return int(binary.LittleEndian.Uint16(p[pageHead+SlotBytes*i+2:]))
}

// Sum starts from the build and the page's number, so a page of another build or
// another place fails.
func (p Page) Sum(start uint32, number uint64) uint32 {
	return crc32.Update(start^uint32(number)^uint32(number>>32), Castagnoli, p[4:])
}

// SlotsEnd is where the slots of so many records end: the records are behind.
func SlotsEnd(records int) int { return pageHead + SlotBytes*records }

// Fits checks the page's own counts and what is reserved. A page of zeros, which
// is what a file has in place of one that was cut off, does not fit.
func (p Page) Fits() bool {
	n, end := p.Records(), int(binary.LittleEndian.Uint16(p[6:]))
	return n <= MaxRecordsPerPage && end == SlotsEnd(n) && binary.LittleEndian.Uint32(p[12:]) == 0
}

// At begins to read the i-th of the n records of a page that fits.
func (p Page) At(i, n int) Cursor {
	at := p.Offset(i)
	if at < SlotsEnd(n) || at >= PageSize {
		return Cursor{Bad: true}
	}
	return Cursor{Rest: p[at:PageSize]}
}

// Find looks for the first record with this tag whose key is what is wanted. A found
// record's cursor stands behind the key. more tells that the key may stand on the
// overflow page.
func (p Page) Find(tag uint16, wanted func(key []byte) bool) (c Cursor, found, more bool) {
	if !p.Fits() {
		return Cursor{Bad: true}, false, false
	}
	n := p.Records()
	i := p.seek(n, tag)
	for ; i < n && p.tag(i) == tag; i++ {
		c := p.At(i, n)
		if key := c.Key(); c.Bad || wanted(key) {
			return c, !c.Bad, false
		}
	}
	if i < n {
		return Cursor{}, false, false
	}
	// Tags up to the page's last were all passed. Were it cut off among them, the
	// last slots would be zeros.
	return Cursor{Bad: n > 0 && p.Offset(n-1) == 0}, false, true
}

// seek returns the first place from which on tags are tag or more, n if there
// is none. Tags are ascending and even over their 65,536 values, so the guess is
// a few places off; a page of bent tags costs a walk over all of them.
func (p Page) seek(n int, tag uint16) int {
	i := SlotGuess(tag, n)
	for i > 0 && p.tag(i-1) >= tag {
		i--
	}
	for i < n && p.tag(i) < tag {
		i++
	}
	return i
}

// SlotGuess is where among n records one with this tag is to be expected.
func SlotGuess(tag uint16, n int) int { return int(uint32(tag) * uint32(n) >> 16) }

// RecordGuess is where in a page of n records the one with this tag is meant to
// begin: as far behind the slots as its tag is among all tags. It lies there or, for
// those in front of it, some lines further on.
func RecordGuess(tag uint16, n int) int {
	from := SlotsEnd(n)
	return from + int(uint32(tag)*uint32(PageSize-CacheLine-from)>>16)
}

// CacheLine is in octets.
const CacheLine = 64

// PageOf is the page of a key within a partition of so many pages; shift is the
// number of bits that chose the partition.
func PageOf(hi uint64, shift uint, pages uint64) uint64 {
	page, _ := bits.Mul64(hi<<shift, pages)
	return page
}
