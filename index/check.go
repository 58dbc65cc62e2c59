package index

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"blockd/bloom"
)

// checker decodes pages and holds them against hash, filter, directory and list
// table. It is for one goroutine.
type checker struct {
	ix     *Index
	filter *bloom.Filter // nil: it is asked later, for what goes to hashes
	hashes *hashLane
	total  census
	n      int
	keys   [bloom.BatchSize]bloom.Hash // that the filter was not yet asked for
	err    error                       // of hashes
}

// newChecker is for an index whose filter is known to be in order.
func (ix *Index) newChecker() *checker {
	c := &checker{ix: ix, filter: ix.filter.near.Load()}
	if c.filter == nil {
		c.filter = ix.filter.mapped
	}
	return c
}

// partition walks from each page of a partition, whose pages these are, along its
// overflow pages, each of which must belong to one page.
func (c *checker) partition(i int, pages []byte) error {
	ix, p := c.ix, c.ix.parts[i]
	overflow := uint32(0)
	for n := range uint64(p.pages) {
		at, last := n, -1
		for hops := 0; ; hops++ {
			page := pages[at*pageSize:][:pageSize:pageSize]
			if err := ix.sumPage(page, p.first+at); err != nil {
				return err
			}
			if !c.page(page, uint64(i), n, &last) {
				return cmp.Or(c.err, corrupt(ix.pageOffset(p.first+at), "page %d does not hold together", p.first+at))
			}
			next := pageNext(page)
			if next == 0 {
				break
			}
			if next > p.overflow || hops == maxOverflow {
				return corrupt(ix.pageOffset(p.first+at), "page %d goes on at overflow page %d of %d", p.first+at, next, p.overflow)
			}
			overflow++
			at = uint64(p.pages) + uint64(next) - 1
		}
	}
	if overflow != p.overflow {
		return corrupt(ix.pageOffset(p.first), "partition %d uses %d overflow pages of %d", i, overflow, p.overflow)
	}
	if !c.asked() {
		return cmp.Or(c.err, corrupt(ix.pageOffset(p.first), "partition %d has keys that the filter lacks", i))
	}
	return nil
}

// page decodes all records of a page, which must be where their hash says, in order
// of their tags, behind the slots and one behind the other.
func (c *checker) page(page []byte, partition, primary uint64, lastTag *int) bool {
	if !pageFits(page) {
		return false
	}
	ix := c.ix
	pages := uint64(ix.parts[partition].pages)
	n := pageRecords(page)
	end := slotsEnd(n)
	for i := range n {
		tag, at := int(pageTag(page, i)), pageOffset(page, i)
		if tag < *lastTag || at < end || at >= pageSize {
			return false
		}
		*lastTag = tag
		key, size := c.usual(page[at:])
		sources := 1
		if size == 0 {
			if key, sources, size = c.record(page[at:]); size == 0 {
				return false
			}
		}
		h := ix.head.hash.sum(key)
		if uint16(h.Hi) != uint16(tag) || h.Hi>>(64-ix.shift) != partition || pageOf(h.Hi, ix.shift, pages) != primary {
			return false
		}
		if !c.total.note(key) || !c.ask(h) {
			return false
		}
		c.total.entries += uint64(sources)
		end = at + size
	}
	return true
}

// record decodes the record that b begins with. size is 0 if it is none.
func (c *checker) record(b []byte) (key []byte, sources, size int) {
	reasons := c.ix.head.sections[secReasons].items
	r := cursor{rest: b}
	key = r.key()
	sources, _ = r.sources()
	for range sources {
		e := r.entry()
		if e.row >= len(c.ix.lists) || e.reason != 0 && uint64(e.reason) > reasons {
			return nil, 0, 0
		}
	}
	size = len(b) - len(r.rest)
	if r.bad || size > maxRecord {
		return nil, 0, 0
	}
	return key, sources, size
}

// usual is record for what nearly all records are: a key of less than 128 octets
// with one entry, which has neither a reason nor an expiry. size is 0 for others.
// It takes a fifth of the time.
func (c *checker) usual(b []byte) (key []byte, size int) {
	n := int(b[0])
	if n == 0 || n >= 0x80 || len(b) < n+5 || b[n+1] != 1 || b[n+2] >= 0x80 || int(b[n+2]) >= len(c.ix.lists) {
		return nil, 0
	}
	p := n + 3
	for b[p] >= 0x80 { // the line, below 2^56
		if p++; p == len(b)-1 || p == n+10 {
			return nil, 0
		}
	}
	if p++; b[p]&^(flagsKnown&^(flagReason|flagExpiry)) != 0 {
		return nil, 0
	}
	return b[1 : 1+n], p + 1
}

// ask asks the filter for h, sooner or later. False: it lacks a key.
func (c *checker) ask(h bloom.Hash) bool {
	c.keys[c.n] = h
	c.n++
	return c.n < len(c.keys) || c.asked()
}

// asked asks for what ask has put off.
func (c *checker) asked() bool {
	keys := c.keys[:c.n]
	c.n = 0
	switch {
	case c.filter == nil:
		c.err = c.hashes.add(keys)
		return c.err == nil
	case len(keys) == 0:
		return true
	}
	return c.filter.HasBatch(keys) == uint32(1<<len(keys)-1)
}

// checkDraft checks ix, which is the file that w has written, opened as a reader
// opens it, as Verify does. Its pages were read back and checked against w when they
// were written: so ix must say of them what w did. The filter that the file has is
// asked for all keys that the pages had.
func (w *fileWriter) checkDraft(ctx context.Context, ix *Index) error {
	defer w.stages.begin("verify")()
	size := int64(ix.head.size)
	w.progress.report(Progress{Stage: "verify", Total: size})
	if !bytes.Equal(ix.head.encode(), w.head.encode()) {
		return corrupt(0, "the header is not the one that was written")
	}
	if !slices.Equal(ix.parts, w.draft.parts) {
		return corrupt(ix.head.sections[secDirectory].offset, "the directory is not the one that was written")
	}
	if err := ix.promote(ctx); err != nil { // reads and sums all of the filter
		return err
	}
	if err := w.hashes.ask(ctx, w.Workers, ix.filter.near.Load(), ix.head.sections[secFilter].offset, w.total.keys); err != nil {
		return err
	}
	w.progress.report(Progress{Stage: "verify", Done: size, Total: size})
	return ix.holds(w.total)
}
