package index

import (
	"context"
	"iter"
	"runtime"
	"slices"

	"blockd/index/internal/format"
)

// Named walks over the entries of ix whose names known accepts and that before may not have: those of the sources that
// before does not hold as they are. It is for a look at what a load brings, by names that are known in another way. A
// name costs 0.28 µs of a processor where known looks into a million others (BenchmarkNamed of package reload, on a busy machine), so ten
// million take 3 s, and no memory. known is called with each name of an address, a local-part ("offers@") or a domain, in no order, and
// must not keep it; patterns, networks and digests have other keys, which it is told as well and must not accept. before
// may be nil. Held entries are left out. An error ends the walk, as that of Entries does.
func (ix *Index) Named(ctx context.Context, before *Index, known func(name []byte) bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := ix.walkNamed(ctx, before, known, yield); err != nil {
			yield(Entry{}, err)
		}
		runtime.KeepAlive(ix)
	}
}

func (ix *Index) walkNamed(ctx context.Context, before *Index, known func(name []byte) bool, yield func(Entry, error) bool) error {
	wanted := ix.newRows(before)
	if !slices.Contains(wanted, true) {
		return nil
	}
	if ix.overlay == nil || before == nil || before.base() != ix.overlay.base {
		for number := range ix.file.Pages {
			if number%256 == 0 {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				runtime.Gosched() // mail goes first
			}
			var spots []spotOf
			err := ix.mapping.guarded(func() (err error) {
				spots, err = ix.namedInPage(number, wanted, known)
				return err
			})
			if err != nil {
				return ix.unreadable(err)
			}
			if more, err := ix.tellAll(ctx, spots, yield); err != nil || !more {
				return err
			}
		}
	}
	if ix.overlay == nil {
		return nil
	}
	var spots []spotOf
	for _, slot := range ix.overlay.slots {
		if slot.at == 0 {
			continue
		}
		if r := ix.overlay.record(slot); known(r.Key()) && r.Rest[0] != 0 {
			spots = ix.spotsOf(spots, &r, ix.file.Pages*format.PageSize+uint64(slot.at-1), wanted)
		}
	}
	_, err := ix.tellAll(ctx, spots, yield)
	return err
}

// newRows says of each row whether before does not hold it as it is.
func (ix *Index) newRows(before *Index) []bool {
	wanted := make([]bool, len(ix.file.Lists))
	for i, row := range ix.file.Lists {
		wanted[i] = before == nil || !slices.ContainsFunc(before.file.Lists, func(old ListInfo) bool {
			return old.Summary.Hash == row.Summary.Hash && old.Source.Equal(row.Source)
		})
	}
	return wanted
}

// base is the file alone.
func (ix *Index) base() *Index {
	if ix.overlay != nil {
		return ix.overlay.base
	}
	return ix
}

// namedInPage returns the entries of a page whose keys known accepts, of wanted rows.
func (ix *Index) namedInPage(number uint64, wanted []bool, known func([]byte) bool) (spots []spotOf, err error) {
	page, err := ix.page(number)
	if err != nil {
		return nil, err
	}
	if !page.Fits() {
		return nil, ix.file.PageDamaged(number)
	}
	n := page.Records()
	for i := range n {
		r := record{Cursor: page.At(i, n)}
		key := r.Key()
		if r.Bad {
			return nil, ix.file.PageDamaged(number)
		}
		if !known(key) || ix.overlay != nil && ix.overlay.speaksFor(key) {
			continue
		}
		if spots = ix.spotsOf(spots, &r, number*format.PageSize+uint64(page.Offset(i)), wanted); r.Bad {
			return nil, ix.file.PageDamaged(number)
		}
	}
	return spots, nil
}
