package index

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"blockd/index/internal/format"
)

// rowUpdate is what has changed in one source.
type rowUpdate struct {
	row         int
	from, to    *os.File // segments of what it held, and holds
	before, now *segmentMeta

	lines lineMap
	keys  map[string][]said // of each key that a change touches: all that the source says of it now
}

// compare finds out what has changed: at most limit entries.
func (r *rowUpdate) compare(ctx context.Context, limit, workers int) error {
	seed := rand.Uint64()
	from, err := newSegmentStream(r.from, r.before, seed)
	if err != nil {
		return err
	}
	to, err := newSegmentStream(r.to, r.now, seed)
	if err != nil {
		return err
	}
	d, err := align(ctx, from, to, limit)
	if err != nil {
		return err
	}
	r.lines = d.lines
	if err := r.touch(r.from, r.before, d.gone); err != nil {
		return err
	}
	if err := r.touch(r.to, r.now, d.come); err != nil {
		return err
	}
	return r.collect(ctx, workers)
}

// touch notes the keys of entries of a segment.
func (r *rowUpdate) touch(f *os.File, m *segmentMeta, where []int64) error {
	buf, at, n := make([]byte, 4096), int64(0), 0
	for _, w := range where {
		// An entry has less than half of what is read. What one chunk holds comes in order.
		if w < at || w+int64(len(buf)/2) > at+int64(n) {
			at = w
			n, _ = f.ReadAt(buf, w) // the description behind the last chunk ends it before the file does
		}
		c := format.Cursor{Rest: buf[w-at : n]}
		key, _ := segmentEntry(&c, len(m.reasons.first))
		if c.Bad {
			return errSegment
		}
		r.keys[string(key)] = nil
	}
	return nil
}

// collect reads the new segment once more for all that it says of the keys that
// are touched: of two equal lines the first one counts, and may have gone.
func (r *rowUpdate) collect(ctx context.Context, workers int) error {
	if len(r.keys) == 0 {
		return nil
	}
	found := make([]map[string][]said, workers)
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for i := range workers {
		found[i] = map[string][]said{}
		group.Go(func() error {
			var buf []byte
			for {
				n := int(next.Add(1)) - 1
				if n >= len(r.now.chunks) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				span := r.now.chunks[n]
				var err error
				if buf, err = span.chunk(r.to, buf); err != nil {
					return err
				}
				if !r.search(buf, span.entries, found[i]) {
					return errSegment
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, part := range found {
		for key, all := range part {
			r.keys[key] = append(r.keys[key], all...)
		}
	}
	for key, all := range r.keys {
		// What one line says stands in one chunk, in order.
		slices.SortStableFunc(all, func(a, b said) int { return cmp.Compare(a.Line, b.Line) })
		r.keys[key] = once(all)
	}
	return nil
}

// search adds what a chunk says of the touched keys.
func (r *rowUpdate) search(chunk []byte, entries uint64, found map[string][]said) bool {
	c := format.Cursor{Rest: chunk}
	for range entries {
		key, e := segmentEntry(&c, len(r.now.reasons.first))
		if c.Bad {
			return false
		}
		if _, touched := r.keys[string(key)]; !touched {
			continue
		}
		s := said{Entry: e}
		s.Row = r.row
		if e.Reason != 0 {
			s.text = string(r.now.reasons.table.Get(e.Reason - 1))
		}
		found[string(key)] = append(found[string(key)], s)
	}
	return true
}

// once leaves of all that one source says of a key each scope and action with its
// first line, as the merger of a build does.
func once(all []said) []said {
	kept := all[:0]
	for _, s := range all {
		if !slices.ContainsFunc(kept, func(k said) bool { return k.Scope == s.Scope && k.Action == s.Action }) {
			kept = append(kept, s)
		}
	}
	return kept
}
