package index

import (
	"context"
	"errors"

	"blockd/index/internal/segment"
)

// fromCache takes the source in from its segment. ok is false, and nothing was
// taken in, if there is none that is of the file as it is now.
func (r *reading) fromCache(ctx context.Context) (ok bool, err error) {
	var s *segment.Segment
	why := r.useLast[r.row]
	if why != nil {
		s = r.segments.Last(r.source)
	} else {
		s, err = r.segments.Find(ctx, r.source)
	}
	if s == nil {
		return false, err
	}
	defer s.Close()
	all := float64(s.Octets())
	err = r.in.feed(ctx, s, func(octets int, entries uint64) {
		now := r.progress
		now.Done += int64(float64(r.done.Add(int64(octets))) / all * float64(r.size))
		now.Entries = r.entries.Add(int64(entries))
		r.builder.progress.report(now)
	})
	if errors.Is(err, segment.ErrDamaged) { // what was taken in of it must not count
		r.segments.Drop(s, err)
		delete(r.useLast, r.row)
		return false, errAgain
	}
	if err != nil {
		return false, err
	}
	r.segments.Use(r.source, s)
	row := &r.rows[r.row]
	row.Summary = s.Summary
	r.tests = s.TestsOf(r.row)
	if why != nil {
		row.Refused, row.LastGood = why, true
	} else {
		r.cached++
	}
	return true, nil
}

// lastGood decides whether the source of a row that is refused is read again from
// the segment of the last published build.
func (b *builder) lastGood(row int, why error) bool {
	if !b.LastGood || b.useLast[row] != nil {
		return false
	}
	last := b.segments.Last(b.sources[row])
	if last == nil {
		return false
	}
	last.Close()
	b.useLast[row] = why
	return true
}

// fallBack is lastGood for sources that fail their self-tests, and reports whether
// it is so for one of them.
func (b *builder) fallBack(failed map[int]ListInfo) (some bool) {
	for i, row := range failed {
		if b.lastGood(i, row.Refused) {
			some = true
		}
	}
	return some
}
