package index

import (
	"context"
	"runtime"

	"blockd/index/internal/format"
)

// Verify reads and sums every page of the store, decodes every record and holds
// their number against the header: the whole file is known good. A damage gives
// an error that wraps ErrRead and names file and offset. It reads the pages
// anew, whatever look-ups have summed before.
func (ix *Index) Verify(ctx context.Context) error {
	if err := ix.verify(ctx); err != nil {
		return ix.unreadable(err)
	}
	return nil
}

func (ix *Index) verify(ctx context.Context) error {
	if ix.overlay != nil {
		return ix.overlay.base.verify(ctx)
	}
	if err := ix.mapping.guarded(ix.filter.verify); err != nil {
		return err
	}
	filter := ix.filter.near.Load()
	if filter == nil {
		filter = ix.filter.mapped
	}
	c := format.Checker{Directory: &ix.file.Directory, Rows: len(ix.file.Lists), Filter: filter}
	for i, p := range ix.file.Parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := ix.mapping.guarded(func() error {
			return c.Partition(i, ix.pages[p.First*format.PageSize:][:p.All()*format.PageSize])
		}); err != nil {
			return err
		}
	}
	runtime.KeepAlive(ix)
	return ix.file.Holds(c.Total)
}
