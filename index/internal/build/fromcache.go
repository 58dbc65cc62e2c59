package build

import (
	"context"
	"errors"

	"blockd/index/internal/format"
	"blockd/index/internal/segment"
)

// fromCache takes the source in from its segment. ok is false, and nothing was
// taken in, if there is none that is of the file as it is now.
func (r *reading) fromCache(ctx context.Context) (ok bool, err error) {
	var s *segment.Segment
	why := r.useLast[r.row]
	if why != nil {
		s = r.Segments.Last(r.source)
	} else {
		s, err = r.Segments.Find(ctx, r.source)
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
		r.Builder.progress.report(now)
	})
	if errors.Is(err, segment.ErrDamaged) && r.source.Kept != "" && why == nil {
		return false, segment.KeptError(r.source, err)
	}
	if errors.Is(err, segment.ErrDamaged) { // what was taken in of it must not count
		r.Segments.Drop(s, err)
		delete(r.useLast, r.row)
		return false, errAgain
	}
	if err != nil {
		return false, err
	}
	r.Segments.Use(r.source, s)
	row := &r.Rows[r.row]
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
func (b *Builder) lastGood(row int, why error) bool {
	if !b.LastGood || b.useLast[row] != nil {
		return false
	}
	last := b.Segments.Last(b.sources[row])
	if last == nil {
		return false
	}
	last.Close()
	b.useLast[row] = why
	return true
}

// fallBack is lastGood for sources that fail their self-tests, and reports whether
// it is so for one of them.
func (b *Builder) fallBack(failed map[int]format.ListInfo) (some bool) {
	for i, row := range failed {
		if b.lastGood(i, row.Refused) {
			some = true
		}
	}
	return some
}
