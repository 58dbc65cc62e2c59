package index

import (
	"context"
	"fmt"
	"runtime"
)

// Verify reads and sums every page of the store, decodes every record and holds
// their number against the header: the whole file is known good. A damage gives
// an error that wraps ErrRead and names file and offset. It reads the pages
// anew, whatever look-ups have summed before.
func (ix *Index) Verify(ctx context.Context) error {
	if err := ix.verify(ctx); err != nil {
		return fmt.Errorf("%w %s: %w", ErrRead, ix.mapping.name, err)
	}
	return nil
}

func (ix *Index) verify(ctx context.Context) error {
	var total census
	for i := range ix.parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := ix.mapping.guarded(func() error { return ix.verifyPartition(i, &total) }); err != nil {
			return err
		}
	}
	if total.keys != ix.head.keys || total.entries != ix.head.entries {
		return corrupt(64, "store has %d keys with %d entries, the header %d with %d",
			total.keys, total.entries, ix.head.keys, ix.head.entries)
	}
	runtime.KeepAlive(ix)
	return nil
}

// census counts what Verify has seen.
type census struct{ keys, entries uint64 }

// verifyPartition walks from each page along its overflow pages, each of which
// must belong to one page.
func (ix *Index) verifyPartition(i int, total *census) error {
	p := ix.parts[i]
	overflow := uint32(0)
	for n := range uint64(p.pages) {
		number, last := p.first+n, -1
		for hops := 0; ; hops++ {
			page := ix.pages[number*pageSize:][:pageSize:pageSize]
			if err := ix.sumPage(page, number); err != nil {
				return err
			}
			if !ix.verifyPage(page, uint32(i), n, &last, total) {
				return corrupt(ix.pageOffset(number), "page %d does not hold together", number)
			}
			next := pageNext(page)
			if next == 0 {
				break
			}
			if next > p.overflow || hops == maxOverflow {
				return corrupt(ix.pageOffset(number), "page %d goes on at overflow page %d of %d", number, next, p.overflow)
			}
			overflow++
			number = p.first + uint64(p.pages) + uint64(next) - 1
		}
	}
	if overflow != p.overflow {
		return corrupt(ix.pageOffset(p.first), "partition %d uses %d overflow pages of %d", i, overflow, p.overflow)
	}
	return nil
}

// verifyPage decodes all records of a page, which must be where their hash says,
// in order of their tags, behind the page's head and one behind the other.
func (ix *Index) verifyPage(page []byte, partition uint32, primary uint64, lastTag *int, total *census) bool {
	if !pageFits(page) {
		return false
	}
	n, at := pageRecords(page), pageStart(page)
	for i := range n {
		tag := int(pageTag(page, i))
		if tag < *lastTag || pageOffset(page, n, i) != at || at >= pageSize {
			return false
		}
		*lastTag = tag
		c := cursor{rest: page[at:]}
		h := ix.head.hash.sum(c.key())
		sources, _ := c.sources()
		for range sources {
			e := c.entry()
			if e.row >= len(ix.lists) || e.reason != 0 && uint64(e.reason) > ix.head.sections[secReasons].items {
				return false
			}
		}
		if c.bad || uint16(h.Hi) != uint16(tag) || h.Hi>>(64-ix.shift) != uint64(partition) ||
			pageOf(h.Hi, ix.shift, uint64(ix.parts[partition].pages)) != primary || !ix.filter.Has(h) {
			return false
		}
		total.keys++
		total.entries += uint64(sources)
		end := pageSize - len(c.rest)
		if end-at > maxRecord {
			return false
		}
		at = end
	}
	return at == pageSize
}
