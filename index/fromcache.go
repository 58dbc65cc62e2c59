package index

import (
	"context"
	"errors"
	"time"

	"blockd/lists"
)

// fromCache takes the source in from its segment. ok is false, and nothing was
// taken in, if there is none that is of the file as it is now.
func (r *reading) fromCache(ctx context.Context) (ok bool, err error) {
	if r.cache.folder == "" {
		return false, nil
	}
	key := sourceKey(r.source)
	old, known := r.cache.memos[key]
	if why := r.useLast[r.row]; why != nil {
		ok, err = r.feed(ctx, old.segment)
		if ok {
			r.cache.fresh[key] = memo{hash: old.hash, segment: old.segment} // of what the file was
			r.rows[r.row].Refused, r.rows[r.row].LastGood = why, true
		}
		return ok, err
	}
	if len(r.cache.memos) == 0 {
		return false, nil
	}
	began := time.Now()
	now, isFile := stampOf(r.source.Path)
	if !isFile {
		return false, nil
	}
	hash := old.hash
	if !known || !old.trusted || now != old.stamp {
		if hash, err = lists.HashFile(ctx, r.source.Path); err != nil {
			return false, ctx.Err() // what is wrong with it the parser says
		}
	}
	name := segmentName(segmentID(hash, r.source.Settings))
	ok, err = r.feed(ctx, name)
	if ok {
		r.cache.fresh[key] = memo{now, now.settled(began), hash, name}
		r.cached++
	}
	return ok, err
}

// feed takes a segment in. A damaged one goes; what was taken in of it then makes
// the error errAgain.
func (r *reading) feed(ctx context.Context, name string) (ok bool, err error) {
	f, meta := r.cache.open(name)
	if f == nil {
		return false, nil
	}
	defer f.Close()
	var octets int64
	for _, c := range meta.chunks {
		octets += c.length
	}
	err = r.in.feed(ctx, f, meta, func(c segmentSpan) {
		now := r.progress
		now.Done += int64(float64(r.done.Add(c.length)) / float64(octets) * float64(r.size))
		now.Entries = r.entries.Add(int64(c.entries))
		r.builder.progress.report(now)
	})
	if errors.Is(err, errSegment) {
		r.cache.drop(name, err)
		delete(r.useLast, r.row)
		return false, errAgain
	}
	if err != nil {
		return false, err
	}
	row := &r.rows[r.row]
	row.Summary, r.networks = meta.summary, meta.networks
	for _, t := range meta.tests {
		t.row = r.row
		r.tests = append(r.tests, t)
	}
	return true, nil
}

// newSegment begins the segment of a source that is about to be parsed. nil: it
// gets none.
func (r *reading) newSegment() *sourceSegment {
	if r.cache.folder == "" {
		return nil
	}
	began := time.Now()
	now, isFile := stampOf(r.source.Path)
	if !isFile {
		return nil
	}
	f := r.cache.create()
	if f == nil {
		return nil
	}
	s := &sourceSegment{segmentWriter: newSegmentWriter(f, r.Workers), memo: memo{stamp: now, trusted: now.settled(began)}}
	for i := range r.in.workers {
		r.in.workers[i].segment = &s.lanes[i]
	}
	return s
}

// sourceSegment is the segment of a source that is being parsed.
type sourceSegment struct {
	*segmentWriter
	memo memo
}

// end ends the parsing of the source with err. A nil segment has no end.
func (s *sourceSegment) end(r *reading, err error) {
	if s == nil {
		return
	}
	meta := segmentMeta{
		summary:  r.rows[r.row].Summary,
		networks: r.networks,
		reasons:  &r.in.rows[r.row].reasons,
		tests:    r.tests,
	}
	for i := range r.in.workers {
		r.in.workers[i].segment = nil
		meta.counts.add(r.in.workers[i].rowCounts)
	}
	if err != nil {
		r.cache.abandon(s.f, nil)
		return
	}
	meta.id = segmentID(meta.summary.Hash, r.source.Settings)
	if err := s.finish(meta); err != nil {
		r.cache.abandon(s.f, err)
		return
	}
	r.cache.keep(s.f, meta.id)
	s.memo.hash, s.memo.segment = meta.summary.Hash, segmentName(meta.id)
	r.cache.fresh[sourceKey(r.source)] = s.memo
}

// lastGood decides whether the source of a row that is refused is read again from
// the segment of the last published build.
func (b *builder) lastGood(row int, s Source, why error) bool {
	old, known := b.cache.memos[sourceKey(s)]
	if !b.LastGood || !known || b.useLast[row] != nil {
		return false
	}
	f, _ := b.cache.open(old.segment)
	if f == nil {
		return false
	}
	f.Close()
	if b.useLast == nil {
		b.useLast = map[int]error{}
	}
	b.useLast[row] = why
	return true
}

// fallBack is lastGood for sources that fail their self-tests, and reports whether
// it is so for one of them.
func (b *builder) fallBack(failed map[int]ListInfo) (some bool) {
	for i, row := range failed {
		if b.lastGood(i, row.Source, row.Refused) {
			some = true
		}
	}
	return some
}
