package index

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"runtime"
	"slices"
	"time"

	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/index/internal/segment"
	"blockd/lists"
)

// UpdateReport is what an update did.
type UpdateReport struct {
	Sources int      // that are other than in the file
	Keys    int      // for which memory speaks in place of the file
	Bytes   int64    // of that memory
	Notes   []string // what was wrong with Options.Cache, a line each
}

// Update returns an index of what sources hold now, if that differs little from
// what ix was built from: the file of ix with what has changed in memory in front
// of it. It answers as a Build of the sources would, list table, counts and worth
// of lists included. Nothing is written but a segment of each changed source into
// Options.Cache, so that the Build which is to follow need not parse it again. Of
// the other Options Workers and Hashes count.
//
// It takes one pass over each changed source and over what it was before, which is
// why the cache is needed. Unchanged ones cost a stat, or their hash when they are
// younger than two seconds.
//
// ErrTooDifferent says that a Build is called for: other sources, settings or hashes, a
// source that is refused or was, changed patterns, a self-test that fails, more
// than 100,000 keys, or no cache. An updated index can be updated again.
func (ix *Index) Update(ctx context.Context, sources []Source, o Options) (*Index, *UpdateReport, error) {
	serving := ix
	if ix.overlay != nil {
		ix = ix.overlay.base // the cache has what its file was made from
	}
	o.Workers = build.Workers(o)
	u := &updating{Options: o, base: ix, serving: serving, cache: segment.Open(o.Cache), table: slices.Clone(ix.file.Lists), limit: 2 * maxOverlayKeys,
		now: time.Now().Unix(), rows: map[int]segment.Change{}}
	updated, err := u.update(ctx, sources)
	runtime.KeepAlive(ix)
	if err != nil {
		return nil, nil, err
	}
	over := updated.overlay
	return updated, &UpdateReport{Sources: len(u.rows), Keys: over.keys, Bytes: over.bytes(), Notes: u.cache.Notes}, nil
}

// updating is one Update.
type updating struct {
	Options
	base    *Index
	serving *Index // base, or an update of it
	cache   *segment.Cache
	table   []ListInfo             // as it is to be
	tests   []segment.Test         // of changed rows
	limit   int                    // entries that may still differ
	now     int64                  // Unix seconds: what has expired by then is not taken in
	rows    map[int]segment.Change // that have changed
}

func (u *updating) update(ctx context.Context, sources []Source) (*Index, error) {
	if have := u.base.Hashes(); have != u.Hashes {
		return nil, segment.TooDifferent("digests by %v instead of %v", u.Hashes, have)
	}
	if len(sources) != len(u.table) {
		return nil, segment.TooDifferent("%d sources instead of %d", len(sources), len(u.table))
	}
	for i, s := range sources {
		if row := u.table[i]; !s.Equal(row.Source) || s.Settings.Guard.ID() != row.Guard {
			return nil, segment.TooDifferent("list %s: %s is read another way", s.List, s.Path)
		}
	}
	for i, s := range sources {
		if err := u.source(ctx, i, s); err != nil {
			return nil, err
		}
	}
	updated, err := u.merge(ctx)
	if err != nil {
		return nil, err
	}
	var id [16]byte
	rand.Read(id[:]) // never fails: it ends the process rather
	updated.generation, updated.file.Lists, updated.file.Built = hex.EncodeToString(id[:]), u.table, time.Now().Unix()
	failed, err := selfTest(ctx, updated, u.table, u.tests, time.Now())
	if err == nil && len(failed) > 0 {
		err = segment.TooDifferent("%v", build.Failures(failed))
	}
	return updated, err
}

// source finds out whether a source has changed, and what.
func (u *updating) source(ctx context.Context, row int, s Source) error {
	was := u.table[row].Summary
	hash, err := u.cache.HashOf(ctx, s)
	fe, ofFile := errors.AsType[*lists.FileError](err)
	switch {
	case was.Verdict != lists.Loaded && s.Optional && ofFile && fe.Class == lists.Missing:
		return nil // as it was
	case ofFile:
		return segment.TooDifferent("%v", err)
	case err != nil:
		return err
	case was.Verdict != lists.Loaded:
		return segment.TooDifferent("list %s: %s was left out", s.List, s.Path)
	case hash == was.Hash:
		u.supersede(row, s, hash)
		return nil
	case u.asServed(row, hash):
		return nil
	}
	from := u.cache.Of(s, was.Hash)
	if from == nil {
		return segment.TooDifferent("list %s: what %s held is not in the cache", s.List, s.Path)
	}
	defer from.Close()
	to, err := u.segment(ctx, s, hash)
	if err != nil {
		return err
	}
	defer to.Close()
	changed, err := segment.Compare(ctx, from, to, u.limit, u.Workers)
	if errors.Is(err, segment.ErrDamaged) {
		return segment.TooDifferent("list %s: %v", s.List, err)
	}
	if err != nil {
		return err
	}
	u.limit -= len(changed.Keys)
	u.rows[row] = *changed
	u.table[row].Summary, u.table[row].NetworkEntries = to.Summary, to.Networks
	u.tests = append(u.tests, to.TestsOf(row)...)
	u.supersede(row, s, hash)
	return nil
}

// asServed takes over what the serving update has of a source whose content is still the same. So many sources may have
// changed since the file was built, and each update costs no more than what has changed since the last one.
func (u *updating) asServed(row int, hash [16]byte) bool {
	if u.serving.overlay == nil || u.serving.file.Lists[row].Summary.Hash != hash {
		return false
	}
	changed, ok := u.serving.overlay.rows[row]
	if !ok {
		return false
	}
	u.limit -= len(changed.Keys)
	u.rows[row] = changed
	u.table[row] = u.serving.file.Lists[row]
	for _, t := range u.serving.overlay.tests {
		if t.Row == row {
			u.tests = append(u.tests, t)
		}
	}
	return true
}

// supersede drops the segment of what the serving update has of a source, now that the source holds something else. The build
// that is to follow does not need it, and a source that changes for an hour would leave a segment each time.
func (u *updating) supersede(row int, s Source, hash [16]byte) {
	if u.serving.overlay == nil {
		return
	}
	if served := u.serving.file.Lists[row].Summary.Hash; served != hash && served != u.base.file.Lists[row].Summary.Hash {
		u.cache.Forget(s, served)
	}
}

// segment opens the segment of a source that had this hash a moment ago, and makes
// it first if need be.
func (u *updating) segment(ctx context.Context, s Source, hash [16]byte) (*segment.Segment, error) {
	if found := u.cache.Of(s, hash); found != nil {
		return found, nil
	}
	if s.Kept != "" {
		return nil, segment.TooDifferent("list %s: what %s held before cannot be read", s.List, s.Path)
	}
	err := u.parse(ctx, s)
	if errors.As(err, new(*lists.FileError)) {
		err = segment.TooDifferent("list %s: %v", s.List, err)
	}
	if err != nil {
		return nil, err
	}
	if u.Parse != nil {
		if made := u.cache.Of(s, hash); made != nil {
			return made, nil
		}
	}
	if made := u.cache.New(s); made != nil {
		return made, nil
	}
	return nil, segment.TooDifferent("list %s: %s has no segment", s.List, s.Path)
}

func (u *updating) parse(ctx context.Context, s Source) error {
	if u.Parse != nil && u.Cache != "" {
		return u.Parse(ctx, u.Cache, s)
	}
	return build.Parse(ctx, u.cache, s, u.Workers)
}

// ParseSegment reads the text of a source for its segment in the folder cache, which an Update is
// about to look for there.
func ParseSegment(ctx context.Context, cache string, s Source, workers int) error {
	c := segment.Open(cache)
	if err := build.Parse(ctx, c, s, build.Workers(Options{Workers: workers})); err != nil {
		return err
	}
	c.HandOver() // the segment stays
	return nil
}

// merge makes the overlay of what has changed in all rows.
func (u *updating) merge(ctx context.Context) (*Index, error) {
	lines := make([]segment.LineMap, len(u.table))
	changed := map[string]bool{}
	for row, r := range u.rows {
		lines[row] = r.Lines
		for key := range r.Keys {
			changed[key] = true
		}
	}
	if len(changed) > maxOverlayKeys {
		return nil, segment.TooDifferent("%d keys have changed", len(changed))
	}
	b := newOverlayBuilder(u.base.file.Hash)
	t := newTally(u.base)
	marked := map[string]bool{} // owners that have a marker
	for n, key := range slices.Sorted(maps.Keys(changed)) {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if key[0] == format.TagGlob || key[0] == format.TagRegexp {
			return nil, segment.TooDifferent("patterns have changed: %s", key[1:])
		}
		was, err := u.base.says(key)
		if err != nil {
			return nil, err
		}
		now := u.says(was, key, lines)
		if len(now) > format.MaxSources {
			return nil, segment.TooDifferent("%q has more than %d entries", key, format.MaxSources)
		}
		t.count(key, was, now)
		if err := b.put(key, now); err != nil {
			return nil, segment.TooDifferent("%v", err)
		}
		if owner := format.OwnerOf(key); owner != "" && len(now) > 0 && !marked[owner] {
			marked[owner] = true
			if err := u.mark(b, t, owner, now[0].Row); err != nil {
				return nil, err
			}
		}
		err = format.DigestKeys(nil, key, u.base.Hashes(), func(digest []byte) error {
			key, was, now := string(digest), forDigest(was), forDigest(now)
			t.count(key, was, now)
			return b.put(key, now)
		})
		if err != nil {
			return nil, segment.TooDifferent("%v", err)
		}
	}
	over := b.overlay(u.base, lines)
	over.rows, over.tests = u.rows, u.tests
	updated := over.index()
	if err := t.apply(updated); err != nil {
		return nil, err
	}
	return updated, nil
}

// mark gives an owner a marker, unless the file has one. That of an owner whose last entry goes stays until
// the next build: a look-up then asks for his entries and finds none.
func (u *updating) mark(b *overlayBuilder, t *tally, owner string, row int) error {
	key := string(format.AppendOwner(nil, owner))
	was, err := u.base.says(key)
	if err != nil || len(was) > 0 {
		return err
	}
	now := []segment.Said{{Entry: format.Entry{Row: row}}}
	t.count(key, nil, now)
	if err := b.put(key, now); err != nil {
		return segment.TooDifferent("%v", err)
	}
	return nil
}

// forDigest is what the key for the digest of an address has: an entry for each row that
// says something of the address.
func forDigest(all []segment.Said) (rows []segment.Said) {
	for _, s := range all {
		if len(rows) == 0 || rows[len(rows)-1].Row != s.Row {
			rows = append(rows, segment.Said{Entry: format.Entry{Row: s.Row}})
		}
	}
	return rows
}

// says is what all rows say of a key now that was said before.
func (u *updating) says(was []segment.Said, key string, lines []segment.LineMap) (now []segment.Said) {
	for _, s := range was {
		if _, anew := u.rows[s.Row].Keys[key]; !anew {
			s.Line = lines[s.Row].Line(s.Line)
			now = append(now, s)
		}
	}
	for row, r := range u.rows {
		for _, s := range r.Keys[key] {
			s.Row = row
			now = append(now, s)
		}
	}
	slices.SortStableFunc(now, func(a, b segment.Said) int { return a.Row - b.Row }) // a row's are in order
	return slices.DeleteFunc(now, func(s segment.Said) bool { return s.Expiry != 0 && s.Expiry <= u.now })
}

// says is what the file says of a key.
func (ix *Index) says(key string) (all []segment.Said, err error) {
	dropped := false
	err = ix.mapping.guarded(func() error {
		c, found, err := ix.find(ix.file.Hash.SumText(key), key)
		if err != nil || !found {
			return err
		}
		var n int
		n, dropped = c.Sources()
		for range n {
			s := segment.Said{Entry: c.Entry()}
			if s.Row >= len(ix.file.Lists) {
				c.Fail()
			}
			if s.Reason != 0 {
				text, ok := format.ReasonAt(ix.reasons, s.Reason-1)
				if !ok {
					c.Fail()
				}
				s.Text = string(text)
			}
			all = append(all, s)
		}
		if c.Bad {
			return format.Corrupt(ix.file.Sections[format.SecPages].Offset, "record of %q does not hold together", key)
		}
		return nil
	})
	if err == nil && dropped {
		return nil, segment.TooDifferent("%q had more than %d entries", key, format.MaxSources)
	}
	return all, ix.unreadable(err)
}
