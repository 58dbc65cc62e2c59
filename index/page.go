package index

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/bits"
	"slices"
)

const (
	pageHead  = 16 // bytes before the tags
	slotBytes = 4  // a record's tag and offset
	pageRoom  = pageSize - pageHead

	// maxOverflow bounds what one look-up can cost: five pages. With honest keys
	// at the default fill a page has none or one.
	maxOverflow = 4
)

// errCrowded reports keys that do not fit a page and its overflow pages.
var errCrowded = errors.New("too many keys fall into one page")

// pageSum is the sum of a page: it starts from the build and the page's number,
// so a page of another build or another place fails.
func pageSum(page []byte, start uint32, number uint64) uint32 {
	return crc32.Update(start^uint32(number)^uint32(number>>32), castagnoli, page[4:])
}

// A page's fields. Pages come from the file: their callers check bounds.
func pageRecords(page []byte) int { return int(binary.LittleEndian.Uint16(page[4:])) }
func pageStart(page []byte) int   { return int(binary.LittleEndian.Uint16(page[6:])) }
func pageNext(page []byte) uint32 { return binary.LittleEndian.Uint32(page[8:]) }
func pageTag(page []byte, i int) uint16 {
	return binary.LittleEndian.Uint16(page[pageHead+2*i:])
}
func pageOffset(page []byte, records, i int) int {
	return int(binary.LittleEndian.Uint16(page[pageHead+2*records+2*i:]))
}

// pageFits checks the page's own counts: its tags and offsets end before its
// records, which end with the page.
func pageFits(page []byte) bool {
	n, start := pageRecords(page), pageStart(page)
	return n <= maxRecordsPerPage && pageHead+n*slotBytes <= start && start <= pageSize &&
		binary.LittleEndian.Uint32(page[12:]) == 0
}

// pageFind looks for key, whose tag is tag. A found record's cursor stands
// behind the key. more tells that the key may stand on the overflow page.
//
// Tags are ascending and even over their 65,536 values, so the first guess is at
// most a few places off; a page of bent tags costs a walk over all of them.
func pageFind(page []byte, tag uint16, key string) (c cursor, found, more bool) {
	if !pageFits(page) {
		return cursor{bad: true}, false, false
	}
	n := pageRecords(page)
	if n == 0 {
		return cursor{}, false, false
	}
	i := int(uint32(tag) * uint32(n) >> 16)
	for i > 0 && pageTag(page, i-1) >= tag {
		i--
	}
	for i < n && pageTag(page, i) < tag {
		i++
	}
	for start := pageStart(page); i < n && pageTag(page, i) == tag; i++ {
		at := pageOffset(page, n, i)
		if at < start || at >= pageSize {
			return cursor{bad: true}, false, false
		}
		c := cursor{rest: page[at:pageSize]}
		if text := c.key(); c.bad || string(text) == key {
			return c, !c.bad, false
		}
	}
	return cursor{}, false, i == n // tags up to the page's last were all passed
}

// placed is a record on its way into a page.
type placed struct {
	hi     uint64
	record []byte
}

func (p placed) tag() uint16 { return uint16(p.hi) }

// pageOf is the page of a key within a partition of so many pages; shift is the
// number of bits that chose the partition.
func pageOf(hi uint64, shift uint, pages uint64) uint64 {
	page, _ := bits.Mul64(hi<<shift, pages)
	return page
}

// cutPages lays the records of one partition, which are in order of hi, into so
// many pages and their overflow pages behind them. It reuses dst's memory.
func cutPages(dst []byte, records []placed, shift uint, pages uint64) (cut []byte, overflow uint32, err error) {
	dst = appendZeros(dst[:0], int(pages)*pageSize)
	for at := 0; at < len(dst); at += pageSize {
		fillPage(dst[at:at+pageSize], nil) // those that no record falls into stay so
	}
	for len(records) > 0 {
		number := pageOf(records[0].hi, shift, pages)
		n := 1
		for n < len(records) && pageOf(records[n].hi, shift, pages) == number {
			n++
		}
		group := records[:n]
		records = records[n:]
		slices.SortStableFunc(group, func(a, b placed) int { return cmp.Compare(a.tag(), b.tag()) })
		at := int(number) * pageSize
		for hops := 0; ; hops++ {
			group = group[fillPage(dst[at:at+pageSize], group):]
			if len(group) == 0 {
				break
			}
			if hops == maxOverflow {
				return dst, 0, errCrowded
			}
			overflow++
			binary.LittleEndian.PutUint32(dst[at+8:], overflow)
			at = len(dst)
			dst = appendZeros(dst, pageSize)
		}
	}
	return dst, overflow, nil
}

// fillPage puts the first records of group, which are in order of their tags,
// into an empty page and returns how many fitted: at least one of them.
func fillPage(page []byte, group []placed) int {
	room, n := pageRoom, 0
	for n < len(group) && room >= slotBytes+len(group[n].record) {
		room -= slotBytes + len(group[n].record)
		n++
	}
	le := binary.LittleEndian
	at := pageHead + n*slotBytes + room
	le.PutUint16(page[4:], uint16(n))
	le.PutUint16(page[6:], uint16(at))
	for i, p := range group[:n] {
		le.PutUint16(page[pageHead+2*i:], p.tag())
		le.PutUint16(page[pageHead+2*n+2*i:], uint16(at))
		at += copy(page[at:], p.record)
	}
	return n
}

func appendZeros(b []byte, n int) []byte {
	b = slices.Grow(b, n)
	clear(b[len(b) : len(b)+n])
	return b[:len(b)+n]
}
