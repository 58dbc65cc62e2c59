package index

import (
	"cmp"
	"context"
	"iter"
	"runtime"
	"slices"
	"time"

	"blockd/index/internal/format"
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
// are among them, and entries about recipients are not: see OwnedEntries. An entry that its file repeats comes once.
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
	_, err = ix.tellAll(ctx, spots, yield)
	return err
}

// tellAll yields the entries at spots, without those that are held. more is false when yield
// wants no more.
func (ix *Index) tellAll(ctx context.Context, spots []spotOf, yield func(Entry, error) bool) (more bool, err error) {
	for n, s := range spots {
		if n%4096 == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		var e Entry
		err := ix.mapping.guarded(func() error {
			var err error
			e, err = ix.entryAt(s.where &^ again)
			return err
		})
		e.Again = s.where&again != 0
		if err != nil {
			return false, ix.unreadable(err)
		}
		if ix.held != nil && !e.Item.Action.Allows() &&
			ix.held[HeldEntry{ix.file.Lists[e.Row].Source.List, e.Item.Kind, e.Item.Scope, e.Item.Name()}] {
			continue
		}
		if !yield(e, nil) {
			return false, nil
		}
	}
	return true, nil
}

// Unordered walks over all entries as Entries does, in no order. Its memory is that of a page,
// whatever the number of entries is. Entry.Again is told as by Entries.
func (ix *Index) Unordered(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := ix.walkPages(ctx, anyones, yield); err != nil {
			yield(Entry{}, err)
		}
		runtime.KeepAlive(ix)
	}
}

func (ix *Index) walkPages(ctx context.Context, which func(key []byte) bool, yield func(Entry, error) bool) error {
	wanted := slices.Repeat([]bool{true}, len(ix.file.Lists))
	var spots []spotOf
	for number := range ix.file.Pages {
		err := ix.mapping.guarded(func() (err error) {
			spots, err = ix.spotsInPage(spots[:0], number, wanted, which)
			return err
		})
		if err != nil {
			return ix.unreadable(err)
		}
		if more, err := ix.tellAll(ctx, spots, yield); err != nil || !more {
			return err
		}
	}
	if ix.overlay == nil {
		return nil
	}
	_, err := ix.tellAll(ctx, ix.spotsInOverlay(spots[:0], wanted, which), yield)
	return err
}

// spots finds all entries and sorts them as their files had them.
func (ix *Index) spots(ctx context.Context, want func(row int) bool) ([]spotOf, error) {
	wanted := make([]bool, len(ix.file.Lists))
	for row := range wanted {
		wanted[row] = want == nil || want(row)
	}
	var spots []spotOf
	for number := range ix.file.Pages {
		if number%256 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err := ix.mapping.guarded(func() (err error) {
			spots, err = ix.spotsInPage(spots, number, wanted, anyones)
			return err
		})
		if err != nil {
			return nil, ix.unreadable(err)
		}
	}
	if ix.overlay != nil {
		spots = ix.spotsInOverlay(spots, wanted, anyones)
	}
	slices.SortFunc(spots, func(a, b spotOf) int {
		if a.from != b.from {
			return cmp.Compare(a.from, b.from)
		}
		return cmp.Compare(a.where, b.where) // two entries of one line
	})
	return spots, nil
}

// spotsInPage appends the entries of wanted rows in a page, of keys for which which is true. Records of keys
// for which the overlay speaks are passed over.
func (ix *Index) spotsInPage(spots []spotOf, number uint64, wanted []bool, which func(key []byte) bool) ([]spotOf, error) {
	page, err := ix.page(number)
	if err != nil {
		return spots, err
	}
	if !page.Fits() {
		return spots, ix.file.PageDamaged(number)
	}
	n := page.Records()
	for i := range n {
		r := record{Cursor: page.At(i, n)}
		if key := r.Key(); !which(key) || ix.overlay != nil && !r.Bad && ix.overlay.speaksFor(key) {
			continue
		}
		if spots = ix.spotsOf(spots, &r, number*format.PageSize+uint64(page.Offset(i)), wanted); r.Bad {
			return spots, ix.file.PageDamaged(number)
		}
	}
	return spots, nil
}

// spotsInOverlay appends the entries of wanted rows in the overlay. Their places come after
// all pages.
func (ix *Index) spotsInOverlay(spots []spotOf, wanted []bool, which func(key []byte) bool) []spotOf {
	for _, slot := range ix.overlay.slots {
		if slot.at == 0 {
			continue
		}
		r := ix.overlay.record(slot)
		if key := r.Key(); which(key) && r.Rest[0] != 0 {
			spots = ix.spotsOf(spots, &r, ix.file.Pages*format.PageSize+uint64(slot.at-1), wanted)
		}
	}
	return spots
}

// spotsOf appends the entries of wanted rows of a record, which stands at where and
// is read up to its key.
func (ix *Index) spotsOf(spots []spotOf, r *record, where uint64, wanted []bool) []spotOf {
	var asks [format.MaxSources]uint8 // scope and action of what is appended
	var ends [format.MaxSources]bool  // it expires
	from := len(spots)
	sources, _ := r.Sources()
	for k := range sources {
		e := r.Entry()
		if e.Row >= len(wanted) {
			r.Fail()
		}
		if r.Bad {
			break
		}
		if wanted[e.Row] {
			ix.present(r, &e)
			n := len(spots) - from
			asks[n], ends[n] = uint8(e.Scope)<<4|uint8(e.Action), e.Expiry != 0
			spots = append(spots, spotOf{uint64(e.Row)<<48 | uint64(e.Line)&(1<<48-1), where<<7 | uint64(k)})
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
	page, at := where>>7/format.PageSize, where>>7%format.PageSize
	var c record
	if page >= ix.file.Pages {
		c = ix.overlay.record(overlaySlot{at: uint32(where>>7-ix.file.Pages*format.PageSize) + 1})
	} else {
		c.Rest = ix.pages[page*format.PageSize+at : (page+1)*format.PageSize]
	}
	text := string(c.Key())
	c.Sources()
	var e format.Entry
	for range where&(1<<7-1) + 1 {
		e = c.Entry()
	}
	reasons := ix.present(&c, &e)
	item := lists.Item{Line: e.Line, Scope: e.Scope, Action: e.Action, Expires: e.Expiry}
	format.Describe(&item, text)
	if e.Reason != 0 {
		reason, ok := format.ReasonAt(reasons, e.Reason-1)
		if !ok {
			c.Fail()
		}
		item.Reason = string(reason)
	}
	if c.Bad {
		return Entry{}, format.Corrupt(ix.file.PageOffset(page), "record of %q does not hold together", text)
	}
	entry := Entry{Row: e.Row, Item: item}
	if e.Expiry != 0 {
		entry.Expires = time.Unix(e.Expiry, 0)
	}
	return entry, nil
}
