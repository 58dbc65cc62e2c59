package index

import (
	"encoding/binary"
	"errors"
	"sync"
)

// unitWriter is one goroutine of writePages.
type unitWriter struct {
	w *fileWriter
	merger
	cutter  pageCutter
	order   *pageOrder
	checker checker
	next    uint64 // page behind the unit that was written last
}

// errStopped is the error of a unit whose predecessor has failed.
var errStopped = errors.New("another unit has failed")

// end is where in the file the last unit ends.
func (u *unitWriter) end() int64 {
	return int64(u.w.head.sections[secPages].offset + u.next*pageSize)
}

// write writes the unit-th of 2^unitBits units of pages, and its partitions' rows
// of the directory.
func (u *unitWriter) write(unit int, unitBits uint) error {
	parts := 1 << (u.in.records.bits - unitBits)
	if err := u.merge(unit*parts, parts); err != nil {
		return err
	}
	partitions := 1 << (u.w.shift - unitBits)
	first := unit * partitions
	rows := u.w.directory[first*partitionBytes:][:partitions*partitionBytes]
	u.cutter.pages = u.cutter.pages[:0]
	for i, records := 0, u.records; i < partitions; i++ {
		n, room := 0, uint64(0)
		for n < len(records) && records[n].hi>>(64-u.w.shift) == uint64(first+i) {
			room += slotBytes + uint64(records[n].n)
			n++
		}
		pages := uint64(0)
		if n > 0 {
			pages = 1 + uint64(float64(room)/(u.w.fill*pageRoom))
		}
		overflow, err := u.cutter.cut(u.buf, records[:n], u.w.shift, pages)
		if err != nil {
			return err
		}
		records = records[n:]
		binary.LittleEndian.PutUint32(rows[i*partitionBytes+8:], uint32(pages))
		binary.LittleEndian.PutUint32(rows[i*partitionBytes+12:], overflow)
	}
	at, ok := u.order.take(unit, uint64(len(u.cutter.pages)/pageSize))
	if !ok {
		return errStopped
	}
	number := at
	for page := u.cutter.pages; len(page) > 0; page = page[pageSize:] {
		binary.LittleEndian.PutUint32(page, pageSum(page[:pageSize], u.w.head.crcStart(), number))
		number++
	}
	u.next = number
	for i, row := first, at; len(rows) > 0; rows = rows[partitionBytes:] {
		binary.LittleEndian.PutUint64(rows, row)
		p := partition{row, binary.LittleEndian.Uint32(rows[8:]), binary.LittleEndian.Uint32(rows[12:])}
		u.w.draft.parts[i] = p
		row += uint64(p.pages) + uint64(p.overflow)
		i++
	}
	offset := int64(u.w.draft.pageOffset(at))
	if err := u.w.f.write(u.cutter.pages, offset); err != nil {
		return err
	}
	if u.w.hooks.wrote != nil {
		u.w.hooks.wrote(unit)
	}
	return u.readBack(first, partitions, offset)
}

// readBack reads the pages of a unit back from the system and checks them as a reader
// does, into memory that never had them. It is not too early: pages of a large file go
// past the system's cache, so that the disk must have them, and those of a small
// one come from that cache whenever they are read. Afterwards nothing of the file
// is written where they are; checkDraft sees to that by the directory.
func (u *unitWriter) readBack(first, partitions int, offset int64) error {
	pages := grow(u.buf[:0], len(u.cutter.pages))
	u.buf = pages[:0]
	if err := u.w.f.read(pages, offset); err != nil {
		return readError(err)
	}
	for i, p := range u.w.draft.parts[first:][:partitions] {
		n := (int(p.pages) + int(p.overflow)) * pageSize
		if err := u.checker.partition(first+i, pages[:n]); err != nil {
			return err
		}
		pages = pages[n:]
	}
	return nil
}

// pageOrder gives units of pages their places in the file, in the order of the
// units, whoever is done first.
type pageOrder struct {
	mu    sync.Mutex
	moved sync.Cond
	unit  int // the next one
	page  uint64
	ended bool // by an error: nobody waits any more
}

// take returns the first page of a unit of so many; false after end.
func (o *pageOrder) take(unit int, pages uint64) (first uint64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.unit != unit && !o.ended {
		o.moved.Wait()
	}
	first = o.page
	o.unit++
	o.page += pages
	o.moved.Broadcast()
	return first, !o.ended
}

func (o *pageOrder) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.moved.Broadcast()
}
