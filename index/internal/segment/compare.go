package segment

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"

	"blockd/index/internal/format"
)

// Said is what one source says about a key, with its reason.
type Said struct {
	format.Entry
	Text string // in place of Entry.Reason
}

// Change is what has changed in one source.
type Change struct {
	Lines LineMap
	Keys  map[string][]Said // of each key that a change touches: all that the source says of it now
}

// Compare finds out what has changed from one segment of a source to another: at most
// limit entries.
func Compare(ctx context.Context, from, to *Segment, limit, workers int) (*Change, error) {
	seed := rand.Uint64()
	old, err := from.stream(seed)
	if err != nil {
		return nil, err
	}
	now, err := to.stream(seed)
	if err != nil {
		return nil, err
	}
	d, err := align(ctx, old, now, limit)
	if err != nil {
		return nil, err
	}
	c := &Change{Lines: d.lines, Keys: map[string][]Said{}}
	if err := cmp.Or(c.touch(from, d.gone), c.touch(to, d.come)); err != nil {
		return nil, err
	}
	return c, c.collect(ctx, to, workers)
}

// touch notes the keys of entries of a segment.
func (d *Change) touch(s *Segment, where []int64) error {
	buf, at, n := make([]byte, 4096), int64(0), 0
	for _, w := range where {
		// An entry has less than half of what is read. What one chunk holds comes in order.
		if w < at || w+int64(len(buf)/2) > at+int64(n) {
			at = w
			n, _ = s.f.ReadAt(buf, w) // the description behind the last chunk ends it before the file does
		}
		c := s.chunk(buf[w-at : n])
		key, _ := c.Entry()
		if c.Bad {
			return ErrDamaged
		}
		d.Keys[string(key)] = nil
	}
	return nil
}

// collect reads the new segment once more for all that it says of the keys that
// are touched: of two equal lines the first one counts, and may have gone.
func (d *Change) collect(ctx context.Context, s *Segment, workers int) error {
	if len(d.Keys) == 0 {
		return nil
	}
	found := make([]map[string][]Said, workers)
	for i := range found {
		found[i] = map[string][]Said{}
	}
	err := s.Each(ctx, workers, func(worker int, c *Chunk, entries uint64) error {
		for range entries {
			key, e := c.Entry()
			if c.Bad {
				break
			}
			if _, touched := d.Keys[string(key)]; !touched {
				continue
			}
			now := Said{Entry: e}
			if e.Reason != 0 {
				now.Text = s.Reasons.Text(e.Reason - 1)
			}
			found[worker][string(key)] = append(found[worker][string(key)], now)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, part := range found {
		for key, all := range part {
			d.Keys[key] = append(d.Keys[key], all...)
		}
	}
	for key, all := range d.Keys {
		// What one line says stands in one chunk, in order.
		slices.SortStableFunc(all, func(a, b Said) int { return cmp.Compare(a.Line, b.Line) })
		d.Keys[key] = once(all)
	}
	return nil
}

// once leaves of all that one source says of a key each scope and action with its
// first line, and the longer time, as the merger of a build does.
func once(all []Said) []Said {
	kept := all[:0]
	for _, s := range all {
		i := slices.IndexFunc(kept, func(k Said) bool { return k.Scope == s.Scope && k.Action == s.Action })
		switch {
		case i < 0:
			kept = append(kept, s)
		case kept[i].Expiry != 0 && (s.Expiry == 0 || s.Expiry > kept[i].Expiry):
			kept[i].Expiry = s.Expiry
		}
	}
	return kept
}
