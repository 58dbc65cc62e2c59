package index

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/bits"
	"slices"
)

const (
	pageHead  = 16 // bytes before the slots
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
func pageNext(page []byte) uint32 { return binary.LittleEndian.Uint32(page[8:]) }
func pageTag(page []byte, i int) uint16 {
	return binary.LittleEndian.Uint16(page[pageHead+slotBytes*i:])
}
func pageOffset(page []byte, i int) int {
	return int(binary.LittleEndian.Uint16(page[pageHead+slotBytes*i+2:]))
}

// slotsEnd is where the slots of so many records end: the records are behind.
func slotsEnd(records int) int { return pageHead + slotBytes*records }

// pageFits checks the page's own counts and what is reserved. A page of zeros, which
// is what a file has in place of one that was cut off, does not fit.
func pageFits(page []byte) bool {
	n, end := pageRecords(page), int(binary.LittleEndian.Uint16(page[6:]))
	return n <= maxRecordsPerPage && end == slotsEnd(n) && binary.LittleEndian.Uint32(page[12:]) == 0
}

// pageFind looks for key, whose tag is tag. A found record's cursor stands
// behind the key. more tells that the key may stand on the overflow page.
func pageFind(page []byte, tag uint16, key string) (c cursor, found, more bool) {
	if !pageFits(page) {
		return cursor{bad: true}, false, false
	}
	n := pageRecords(page)
	i := pageSeek(page, n, tag)
	for ; i < n && pageTag(page, i) == tag; i++ {
		at := pageOffset(page, i)
		if at < slotsEnd(n) || at >= pageSize {
			return cursor{bad: true}, false, false
		}
		c := cursor{rest: page[at:pageSize]}
		if text := c.key(); c.bad || string(text) == key {
			return c, !c.bad, false
		}
	}
	if i < n {
		return cursor{}, false, false
	}
	// Tags up to the page's last were all passed. Were it cut off among them, the
	// last slots would be zeros.
	return cursor{bad: n > 0 && pageOffset(page, n-1) == 0}, false, true
}

// pageSeek returns the first place from which on tags are tag or more, n if there
// is none. Tags are ascending and even over their 65,536 values, so the guess is
// a few places off; a page of bent tags costs a walk over all of them.
func pageSeek(page []byte, n int, tag uint16) int {
	i := slotGuess(tag, n)
	for i > 0 && pageTag(page, i-1) >= tag {
		i--
	}
	for i < n && pageTag(page, i) < tag {
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

// placed is a record on its way into a page: where it lies in a buffer.
type placed struct {
	hi uint64
	at uint32
	n  uint32
}

func (p placed) tag() uint16 { return uint16(p.hi) }

// pageOf is the page of a key within a partition of so many pages; shift is the
// number of bits that chose the partition.
func pageOf(hi uint64, shift uint, pages uint64) uint64 {
	page, _ := bits.Mul64(hi<<shift, pages)
	return page
}

// pageCutter lays records into pages. It keeps its memory from call to call.
type pageCutter struct {
	pages []byte   // cut so far
	order []uint64 // of a page's records: tag and number
	spare []uint64
}

// cut appends the records of one partition, which lie in buf and are in order of
// hi, as so many pages and their overflow pages behind them.
func (c *pageCutter) cut(buf []byte, records []placed, shift uint, pages uint64) (overflow uint32, err error) {
	from := len(c.pages)
	c.pages = grow(c.pages, int(pages)*pageSize)
	empty := uint64(0) // the first page that nothing was put on so far
	for len(records) > 0 {
		number := pageOf(records[0].hi, shift, pages)
		c.order = append(c.order[:0], uint64(records[0].tag())<<32)
		n := 1
		for ; n < len(records) && pageOf(records[n].hi, shift, pages) == number; n++ {
			c.order = append(c.order, uint64(records[n].tag())<<32|uint64(n))
		}
		group, order := records[:n], c.order
		records = records[n:]
		order = c.sort(order)
		for ; empty < number; empty++ {
			fillPage(c.pages[from+int(empty)*pageSize:][:pageSize], nil, nil, nil)
		}
		empty++
		at := from + int(number)*pageSize
		for hops := 0; ; hops++ {
			order = order[fillPage(c.pages[at:at+pageSize], buf, group, order):]
			if len(order) == 0 {
				break
			}
			if hops == maxOverflow {
				return 0, errCrowded
			}
			overflow++
			binary.LittleEndian.PutUint32(c.pages[at+8:], overflow)
			at = len(c.pages)
			c.pages = grow(c.pages, pageSize)
		}
	}
	for ; empty < pages; empty++ {
		fillPage(c.pages[from+int(empty)*pageSize:][:pageSize], nil, nil, nil)
	}
	return overflow, nil
}

// sort sorts c.order. Tags are spread evenly, so that one pass by their first bits
// leaves little to do: 5 ns a record, against 25 for a comparing sort.
func (c *pageCutter) sort(order []uint64) []uint64 {
	if len(order) > maxRecordsPerPage { // chosen to crowd one page
		slices.Sort(order)
		return order
	}
	var ends [128]uint16
	for _, o := range order {
		ends[o>>41]++ // the first seven of sixteen bits
	}
	sum := uint16(0)
	for i, n := range ends {
		ends[i] = sum
		sum += n
	}
	c.spare = slices.Grow(c.spare[:0], len(order))[:len(order)]
	for _, o := range order {
		c.spare[ends[o>>41]] = o
		ends[o>>41]++
	}
	for i := 1; i < len(c.spare); i++ {
		o, k := c.spare[i], i
		for ; k > 0 && o < c.spare[k-1]; k-- {
			c.spare[k] = c.spare[k-1]
		}
		c.spare[k] = o
	}
	return c.spare
}

// fillPage puts the first records of group in order, which is that of their tags,
// into a page, whatever that holds, and returns how many fitted: at least one.
func fillPage(page, buf []byte, group []placed, order []uint64) int {
	room, n := pageRoom, 0
	for n < len(order) && room >= slotBytes+int(group[uint32(order[n])].n) {
		room -= slotBytes + int(group[uint32(order[n])].n)
		n++
	}
	le := binary.LittleEndian
	end := slotsEnd(n)
	rest := pageSize - end - room // of the records
	clear(page[:pageHead])
	le.PutUint16(page[4:], uint16(n))
	le.PutUint16(page[6:], uint16(end))
	for i, o := range order[:n] {
		p, tag := group[uint32(o)], uint16(o>>32)
		at := min(max(end, recordGuess(tag, n)), pageSize-rest)
		clear(page[end:at])
		slot := page[pageHead+slotBytes*i:]
		le.PutUint16(slot, tag)
		le.PutUint16(slot[2:], uint16(at))
		end = at + copy(page[at:], buf[p.at:p.at+p.n])
		rest -= int(p.n)
	}
	clear(page[end:])
	return n
}
