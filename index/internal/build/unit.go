package build

import (
	"cmp"
	"encoding/binary"
	"sync"

	"blockd/index/internal/format"
	"blockd/index/internal/memory"
)

// unitWriter is one goroutine of writePages.
type unitWriter struct {
	w *fileWriter
	merger
	cutter  format.Cutter
	order   *pageOrder
	checker format.Checker
	next    uint64 // page behind the unit that was written last
}

// end is where in the file the last unit ends.
func (u *unitWriter) end() int64 {
	return int64(u.w.head.Sections[format.SecPages].Offset + u.next*format.PageSize)
}

// write writes the unit-th of 2^unitBits units of pages, and its partitions' rows
// of the directory.
func (u *unitWriter) write(unit int, unitBits uint) error {
	loaded, shift := 1<<(u.in.records.bits-unitBits), u.w.draft.Shift
	if err := u.merge(unit*loaded, loaded); err != nil {
		return err
	}
	partitions := 1 << (shift - unitBits)
	first := unit * partitions
	parts := u.w.draft.Parts[first:][:partitions]
	u.cutter.Pages = u.cutter.Pages[:0]
	records := u.records
	for i := range parts {
		n, room := 0, uint64(0)
		for n < len(records) && records[n].Hi>>(64-shift) == uint64(first+i) {
			room += format.SlotBytes + uint64(records[n].N)
			n++
		}
		pages := uint64(0)
		if n > 0 {
			pages = 1 + uint64(float64(room)/(u.w.fill*format.PageRoom))
		}
		overflow, err := u.cutter.Cut(u.buf, records[:n], shift, pages)
		if err != nil {
			return err
		}
		records = records[n:]
		parts[i] = format.Partition{Pages: uint32(pages), Overflow: overflow}
	}
	at, err := u.order.take(unit, uint64(len(u.cutter.Pages)/format.PageSize))
	if err != nil {
		return err
	}
	for u.next = at; u.next < at+uint64(len(u.cutter.Pages)/format.PageSize); u.next++ {
		page := format.Page(u.cutter.Pages[(u.next-at)*format.PageSize:][:format.PageSize])
		binary.LittleEndian.PutUint32(page, page.Sum(u.w.head.SumStart(), u.next))
	}
	for i, next := 0, at; i < len(parts); i++ {
		parts[i].First = next
		next += parts[i].All()
	}
	offset := int64(u.w.draft.PageOffset(at))
	if err := u.w.f.write(u.cutter.Pages, offset); err != nil {
		return err
	}
	if u.w.hooks.Wrote != nil {
		u.w.hooks.Wrote(unit)
	}
	return u.readBack(first, parts, offset)
}

// readBack reads the pages of a unit back from the system and checks them as a reader
// does, into memory that never had them. It is not too early: pages of a large file go
// past the system's cache, so that the disk must have them, and those of a small
// one come from that cache whenever they are read. Afterwards nothing of the file
// is written where they are; checkDraft sees to that by the directory.
func (u *unitWriter) readBack(first int, parts []format.Partition, offset int64) error {
	pages := memory.Grow(u.buf[:0], len(u.cutter.Pages))
	u.buf = pages[:0]
	if err := u.w.f.read(pages, offset); err != nil {
		return format.ReadError(err)
	}
	for i, p := range parts {
		n := p.All() * format.PageSize
		if err := u.checker.Partition(first+i, pages[:n]); err != nil {
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
	err   error // of one of them: none waits any more
}

// take returns the first page of a unit of so many; the error of another one if that
// has failed.
func (o *pageOrder) take(unit int, pages uint64) (first uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.unit != unit && o.err == nil {
		o.moved.Wait()
	}
	first = o.page
	o.unit++
	o.page += pages
	o.moved.Broadcast()
	return first, o.err
}

func (o *pageOrder) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = cmp.Or(o.err, err)
	o.moved.Broadcast()
}
