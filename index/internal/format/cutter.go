package format

import (
	"encoding/binary"
	"errors"
	"slices"

	"blockd/index/internal/memory"
)

// ErrCrowded reports keys that do not fit a page and its overflow pages.
var ErrCrowded = errors.New("too many keys fall into one page")

// Placed is a record on its way into a page: where it lies in a buffer.
type Placed struct {
	Hi uint64
	At uint32
	N  uint32
}

func (p Placed) tag() uint16 { return uint16(p.Hi) }

// Cutter lays records into pages. It keeps its memory from call to call.
type Cutter struct {
	Pages []byte   // cut so far
	order []uint64 // of a page's records: tag and number
	spare []uint64
}

// Cut appends the records of one partition, which lie in buf and are in order of
// hi, as so many pages and their overflow pages behind them.
func (c *Cutter) Cut(buf []byte, records []Placed, shift uint, pages uint64) (overflow uint32, err error) {
	from := len(c.Pages)
	c.Pages = memory.Grow(c.Pages, int(pages)*PageSize)
	empty := uint64(0) // the first page that nothing was put on so far
	for len(records) > 0 {
		number := PageOf(records[0].Hi, shift, pages)
		c.order = append(c.order[:0], uint64(records[0].tag())<<32)
		n := 1
		for ; n < len(records) && PageOf(records[n].Hi, shift, pages) == number; n++ {
			c.order = append(c.order, uint64(records[n].tag())<<32|uint64(n))
		}
		group, order := records[:n], c.order
		records = records[n:]
		order = c.sort(order)
		for ; empty < number; empty++ {
			fillPage(c.Pages[from+int(empty)*PageSize:][:PageSize], nil, nil, nil)
		}
		empty++
		at := from + int(number)*PageSize
		for hops := 0; ; hops++ {
			order = order[fillPage(c.Pages[at:at+PageSize], buf, group, order):]
			if len(order) == 0 {
				break
			}
			if hops == MaxOverflow {
				return 0, ErrCrowded
			}
			overflow++
			binary.LittleEndian.PutUint32(c.Pages[at+8:], overflow)
			at = len(c.Pages)
			c.Pages = memory.Grow(c.Pages, PageSize)
		}
	}
	for ; empty < pages; empty++ {
		fillPage(c.Pages[from+int(empty)*PageSize:][:PageSize], nil, nil, nil)
	}
	return overflow, nil
}

// sort sorts c.order. Tags are spread evenly, so that one pass by their first bits
// leaves little to do: 5 ns a record, against 25 for a comparing sort.
func (c *Cutter) sort(order []uint64) []uint64 {
	if len(order) > MaxRecordsPerPage { // chosen to crowd one page
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
func fillPage(page, buf []byte, group []Placed, order []uint64) int {
	room, n := PageRoom, 0
	for n < len(order) && room >= SlotBytes+int(group[uint32(order[n])].N) {
		room -= SlotBytes + int(group[uint32(order[n])].N)
		n++
	}
	le := binary.LittleEndian
	end := SlotsEnd(n)
	rest := PageSize - end - room // of the records
	clear(page[:pageHead])
	le.PutUint16(page[4:], uint16(n))
	le.PutUint16(page[6:], uint16(end))
	for i, o := range order[:n] {
		p, tag := group[uint32(o)], uint16(o>>32)
		at := min(max(end, RecordGuess(tag, n)), PageSize-rest)
		clear(page[end:at])
		slot := page[pageHead+SlotBytes*i:]
		le.PutUint16(slot, tag)
		le.PutUint16(slot[2:], uint16(at))
		end = at + copy(page[at:], buf[p.At:p.At+p.N])
		rest -= int(p.N)
	}
	clear(page[end:])
	return n
}
