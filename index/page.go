package index

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

const (
	pageHead  = 16 // bytes before the slots
	slotBytes = 4  // a record's tag and offset
	pageRoom  = pageSize - pageHead

	// maxOverflow bounds what one look-up can cost: five pages. With honest keys
	// at the default fill a page has none or one.
	maxOverflow = 4
)

// page is one page of the store. It comes from the file: callers check bounds.
type page []byte

func (p page) records() int     { return int(binary.LittleEndian.Uint16(p[4:])) }
func (p page) next() uint32     { return binary.LittleEndian.Uint32(p[8:]) }
func (p page) tag(i int) uint16 { return binary.LittleEndian.Uint16(p[pageHead+slotBytes*i:]) }
func (p page) offset(i int) int {
	return int(binary.LittleEndian.Uint16(p[pageHead+slotBytes*i+2:]))
}

// sum starts from the build and the page's number, so a page of another build or
// another place fails.
func (p page) sum(start uint32, number uint64) uint32 {
	return crc32.Update(start^uint32(number)^uint32(number>>32), castagnoli, p[4:])
}

// slotsEnd is where the slots of so many records end: the records are behind.
func slotsEnd(records int) int { return pageHead + slotBytes*records }

// fits checks the page's own counts and what is reserved. A page of zeros, which
// is what a file has in place of one that was cut off, does not fit.
func (p page) fits() bool {
	n, end := p.records(), int(binary.LittleEndian.Uint16(p[6:]))
	return n <= maxRecordsPerPage && end == slotsEnd(n) && binary.LittleEndian.Uint32(p[12:]) == 0
}

// at begins to read the i-th of the n records of a page that fits.
func (p page) at(i, n int) cursor {
	at := p.offset(i)
	if at < slotsEnd(n) || at >= pageSize {
		return cursor{bad: true}
	}
	return cursor{rest: p[at:pageSize]}
}

// find looks for key, whose tag is tag. A found record's cursor stands
// behind the key. more tells that the key may stand on the overflow page.
func (p page) find(tag uint16, key string) (c cursor, found, more bool) {
	if !p.fits() {
		return cursor{bad: true}, false, false
	}
	n := p.records()
	i := p.seek(n, tag)
	for ; i < n && p.tag(i) == tag; i++ {
		c := p.at(i, n)
		if text := c.key(); c.bad || string(text) == key {
			return c, !c.bad, false
		}
	}
	if i < n {
		return cursor{}, false, false
	}
	// Tags up to the page's last were all passed. Were it cut off among them, the
	// last slots would be zeros.
	return cursor{bad: n > 0 && p.offset(n-1) == 0}, false, true
}

// seek returns the first place from which on tags are tag or more, n if there
// is none. Tags are ascending and even over their 65,536 values, so the guess is
// a few places off; a page of bent tags costs a walk over all of them.
func (p page) seek(n int, tag uint16) int {
	i := slotGuess(tag, n)
	for i > 0 && p.tag(i-1) >= tag {
		i--
	}
	for i < n && p.tag(i) < tag {
		i++
	}
	return i
}

// slotGuess is where among n records one with this tag is to be expected.
func slotGuess(tag uint16, n int) int { return int(uint32(tag) * uint32(n) >> 16) }

// recordGuess is where in a page of n records the one with this tag is meant to
// begin: as far behind the slots as its tag is among all tags. It lies there or, for
// those in front of it, some lines further on.
func recordGuess(tag uint16, n int) int {
	from := slotsEnd(n)
	return from + int(uint32(tag)*uint32(pageSize-cacheLine-from)>>16)
}

const cacheLine = 64

// pageOf is the page of a key within a partition of so many pages; shift is the
// number of bits that chose the partition.
func pageOf(hi uint64, shift uint, pages uint64) uint64 {
	page, _ := bits.Mul64(hi<<shift, pages)
	return page
}
