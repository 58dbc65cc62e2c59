package index

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"time"

	"blockd/lists"
)

// Entry is one entry as its list had it. It holds copies only.
type Entry struct {
	Row     int // of Lists()
	Item    lists.Item
	Expires time.Time // zero: never
	Again   bool      // one before it in this walk, which never expires, has the same key, scope and action
}

// spotOf is where one entry stands: the place of its record in the section of
// pages, and its number among the record's sources.
type spotOf struct {
	from  uint64 // row and line, the order of the walk
	where uint64 // with the bit again
}

// again is the bit of a place whose entry is Entry.Again. Places are far below it.
const again = 1 << 63

// Entries walks over all entries of the rows that want accepts, in the order of
// Lists and of their lines; nil accepts all. Client addresses, networks and patterns
// are among them. An entry that its file repeats comes once.
//
// It takes 16 bytes of memory for each entry. An error, which wraps ErrRead or is
// that of ctx, ends the walk and comes with a zero Entry.
func (ix *Index) Entries(ctx context.Context, want func(row int) bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := ix.walk(ctx, want, yield); err != nil {
			yield(Entry{}, err)
		}
		runtime.KeepAlive(ix)
	}
}

func (ix *Index) walk(ctx context.Context, want func(row int) bool, yield func(Entry, error) bool) error {
	spots, err := ix.spots(ctx, want)
	if err != nil {
		return err
	}
	for n, s := range spots {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		var e Entry
		err := ix.mapping.guarded(func() error {
			var err error
			e, err = ix.entryAt(s.where &^ again)
			return err
		})
		e.Again = s.where&again != 0
		if err != nil {
			return ix.unreadable(err)
		}
		if ix.held != nil && !e.Item.Action.Allows() &&
			ix.held[HeldEntry{ix.file.lists[e.Row].Source.List, e.Item.Kind, e.Item.Scope, e.Item.Name()}] {
			continue
		}
		if !yield(e, nil) {
			return nil
		}
	}
	return nil
}

// spots finds all entries and sorts them as their files had them.
func (ix *Index) spots(ctx context.Context, want func(row int) bool) ([]spotOf, error) {
	wanted := make([]bool, len(ix.file.lists))
	for row := range wanted {
		wanted[row] = want == nil || want(row)
	}
	var spots []spotOf
	for number := range ix.file.pages {
		if number%256 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err := ix.mapping.guarded(func() error {
			page, err := ix.page(number)
			if err != nil {
				return err
			}
			if !page.fits() {
				return ix.file.pageDamaged(number)
			}
			n := page.records()
			for i := range n {
				r := record{cursor: page.at(i, n)}
				if key := r.key(); ix.overlay != nil && !r.bad && ix.overlay.speaksFor(key) {
					continue
				}
				if spots = ix.spotsOf(spots, &r, number*pageSize+uint64(page.offset(i)), wanted); r.bad {
					return ix.file.pageDamaged(number)
				}
			}
			return nil
		})
		if err != nil {
			return nil, ix.unreadable(err)
		}
	}
	if ix.overlay != nil {
		for _, slot := range ix.overlay.slots {
			if slot.at == 0 {
				continue
			}
			r := ix.overlay.record(slot)
			if r.key(); r.rest[0] != 0 {
				spots = ix.spotsOf(spots, &r, ix.file.pages*pageSize+uint64(slot.at-1), wanted)
			}
		}
	}
	slices.SortFunc(spots, func(a, b spotOf) int {
		switch {
		case a.from < b.from:
			return -1
		case a.from > b.from:
			return 1
		case a.where < b.where: // two entries of one line
			return -1
		case a.where > b.where:
			return 1
		}
		return 0
	})
	return spots, nil
}

// spotsOf appends the entries of wanted rows of a record, which stands at where and
// is read up to its key.
func (ix *Index) spotsOf(spots []spotOf, r *record, where uint64, wanted []bool) []spotOf {
	var asks [maxSources]uint8 // scope and action of what is appended
	var ends [maxSources]bool  // it expires
	from := len(spots)
	sources, _ := r.sources()
	for k := range sources {
		e := r.entry()
		if e.row >= len(wanted) {
			r.fail()
		}
		if r.bad {
			break
		}
		if wanted[e.row] {
			ix.present(r, &e)
			n := len(spots) - from
			asks[n], ends[n] = uint8(e.scope)<<4|uint8(e.action), e.expiry != 0
			spots = append(spots, spotOf{uint64(e.row)<<48 | uint64(e.line)&(1<<48-1), where<<7 | uint64(k)})
		}
	}
	for i := range spots[from:] {
		for j := range spots[from:] {
			if asks[i] == asks[j] && !ends[j] && spots[from+j].from < spots[from+i].from {
				spots[from+i].where |= again
			}
		}
	}
	return spots
}

// entryAt decodes an entry that spots has found: in a page, or behind all of them
// in the overlay.
func (ix *Index) entryAt(where uint64) (Entry, error) {
	page, at := where>>7/pageSize, where>>7%pageSize
	var c record
	if page >= ix.file.pages {
		c = ix.overlay.record(overlaySlot{at: uint32(where>>7-ix.file.pages*pageSize) + 1})
	} else {
		c.rest = ix.pages[page*pageSize+at : (page+1)*pageSize]
	}
	text := string(c.key())
	c.sources()
	var e entry
	for range where&(1<<7-1) + 1 {
		e = c.entry()
	}
	reasons := ix.present(&c, &e)
	item := lists.Item{Line: e.line, Scope: e.scope, Action: e.action}
	describe(&item, text)
	if e.reason != 0 {
		reason, ok := reasonAt(reasons, e.reason-1)
		if !ok {
			c.fail()
		}
		item.Reason = string(reason)
	}
	if c.bad {
		return Entry{}, corrupt(ix.file.pageOffset(page), "record of %q does not hold together", text)
	}
	entry := Entry{Row: e.row, Item: item}
	if e.expiry != 0 {
		entry.Expires = time.Unix(e.expiry, 0)
	}
	return entry, nil
}
