package index

import (
	"encoding/binary"
	"errors"
	"slices"
)

// errCrowded reports keys that do not fit a page and its overflow pages.
var errCrowded = errors.New("too many keys fall into one page")

// placed is a record on its way into a page: where it lies in a buffer.
type placed struct {
	hi uint64
	at uint32
	n  uint32
}

func (p placed) tag() uint16 { return uint16(p.hi) }

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
