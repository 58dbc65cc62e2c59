package index

import (
	"context"
	"maps"
	"runtime"
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
	c := ix.newChecker()
	for i, p := range ix.parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := ix.mapping.guarded(func() error {
			return c.partition(i, ix.pages[p.first*pageSize:][:(uint64(p.pages)+uint64(p.overflow))*pageSize])
		}); err != nil {
			return err
		}
	}
	if err := ix.holds(c.total); err != nil {
		return err
	}
	runtime.KeepAlive(ix)
	return nil
}

// holds holds the header's counts, and the networks', against what the pages have.
func (ix *Index) holds(total census) error {
	if total.keys != ix.head.keys || total.entries != ix.head.entries {
		return corrupt(64, "store has %d keys with %d entries, the header %d with %d",
			total.keys, total.entries, ix.head.keys, ix.head.entries)
	}
	if !maps.Equal(total.nets, ix.networks.counts) {
		return corrupt(ix.head.sections[secNetworks].offset, "store has networks of other lengths than the table of them")
	}
	return ix.holdsPatterns(total.patterns)
}

// census counts what Verify has seen.
type census struct {
	keys, entries uint64
	nets          netCounts
	patterns      []string // their keys
}

// note counts a key, and is false for one that begins like a network's or a pattern's and is none.
func (c *census) note(key []byte) bool {
	c.keys++
	c.nets.note(key)
	if len(key) > 0 && key[0] < ' ' {
		if key[0] == tagGlob || key[0] == tagRegexp {
			c.patterns = append(c.patterns, string(key))
			return true
		}
		_, ok := netOf(string(key))
		return ok
	}
	return true
}

func (c *census) add(o census) {
	c.keys += o.keys
	c.entries += o.entries
	c.nets.add(o.nets)
	c.patterns = append(c.patterns, o.patterns...)
}
