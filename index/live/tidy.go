package live

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"os"
	"time"

	"blockd/internal/durable"
)

const (
	// tidyEvery is how long an expired entry may take up room.
	tidyEvery = time.Minute

	// foldFrom is how many entries an index may lack before a build is due. Fewer cost a
	// look-up nothing that can be measured.
	foldFrom = 1000

	// retryAfter is how long a disk that could not take a snapshot is left alone.
	retryAfter = 5 * time.Second

	// sweptAtOnce bounds the expired entries that are removed by one write.
	sweptAtOnce = 10_000

	// partOfBase: while changes come, a snapshot is written when the journal has a change for so many
	// of its entries.
	partOfBase = 16
)

// Run tidies up until ctx ends, and then returns nil. It removes expired entries, puts a long
// journal into a snapshot, and writes the list of entries
// when the index lacks many of them, whose change a Reloader sees.
func (s *Set) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	var folded, failed time.Time
	for {
		var err error
		quiet := false
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			err, quiet = s.sweep(s.Now()), true
		case <-s.tidy:
		}
		if time.Since(folded) >= tidyEvery && s.newer() >= foldFrom {
			folded = time.Now()
			_, foldErr := s.Fold(ctx)
			err = errors.Join(err, foldErr)
		}
		if time.Since(failed) >= retryAfter {
			rewriteErr := s.rewrite(quiet)
			if rewriteErr != nil {
				failed = time.Now()
			}
			err = errors.Join(err, rewriteErr)
		}
		if err != nil && ctx.Err() == nil {
			log.Error("live entries not tidied", slog.Any("error", err))
		}
	}
}

func (s *Set) wakeRun() {
	select {
	case s.tidy <- struct{}{}:
	default:
	}
}

// newer returns how many entries the serving index lacks.
func (s *Set) newer() int { return int(s.view.Load().fresh.Load()) }

// Tidy removes expired entries, and puts the journal into a snapshot if it is long or broken.
func (s *Set) Tidy() error {
	return errors.Join(s.sweep(s.Now()), s.rewrite(true))
}

// sweep removes expired entries, with records like any removal: a clock that is set back must
// not bring back an entry that an index was built without.
func (s *Set) sweep(now time.Time) error {
	for {
		if n, err := s.sweepSome(now); n < sweptAtOnce || err != nil {
			return err
		}
	}
}

// sweepSome removes at most sweptAtOnce expired entries, and returns how many.
func (s *Set) sweepSome(now time.Time) (n int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.journal == nil {
		return 0, nil
	}
	var gone []*Entry
	for e := range s.expired(now) {
		one := e()
		if one.Rev > 0 && s.share.Load() != nil {
			continue // the engine removes it, for all
		}
		if gone = append(gone, one); len(gone) == sweptAtOnce {
			break
		}
	}
	if len(gone) == 0 {
		return 0, nil
	}
	st := s.stage()
	changes := make([]Change, len(gone))
	for i := range changes {
		changes[i].Remove = true
	}
	_, err = st.add(changes, gone, now)
	if err == nil {
		err = s.commit(st)
	}
	if err != nil {
		return 0, err
	}
	s.counts.expired.Add(uint64(len(gone)))
	base := s.view.Load().base
	for base != nil && s.ended < base.snapshotHead.ends {
		if i := base.ending(s.ended); base.expiry(i) > now.Unix() || !s.view.Load().overruled(i) {
			break
		}
		s.ended++
	}
	return len(gone), nil
}

// expired are the entries that are there although their time is over, each as a function that makes it.
// The caller holds writing.
func (s *Set) expired(now time.Time) iter.Seq[func() *Entry] {
	return func(yield func(func() *Entry) bool) {
		v := s.view.Load()
		for e := range v.delta.all() {
			if !e.gone && e.expired(now.Unix()) && !yield(func() *Entry { return e }) {
				return
			}
		}
		if v.base == nil {
			return
		}
		for n := s.ended; n < v.base.snapshotHead.ends; n++ {
			i := v.base.ending(n)
			if v.base.expiry(i) > now.Unix() {
				return
			}
			if !v.overruled(i) && !yield(func() *Entry { return v.base.entry(i) }) {
				return
			}
		}
	}
}

// due reports whether a snapshot is to be written; quiet is whether it is a good moment. While changes
// come fast, one is written for each sixteenth of the entries, so that writing costs less than the
// changes; at a good moment, for what a start would take milliseconds to read. The caller holds writing.
func (s *Set) due(quiet bool) bool {
	if s.stale || s.journal != nil && s.journal.broken != nil {
		return true
	}
	from := s.compact
	if base := s.view.Load().base; base != nil && !quiet {
		from = max(from, base.count/partOfBase)
	}
	return s.records > from
}

// rewrite writes a snapshot of all entries and begins the journal anew, if that is due. Changes may be
// made while most of it is written; the new journal goes on with them.
//
// Until the snapshot has its name, the old one and the journal have everything. From then on the journal
// still has everything that the snapshot lacks, and what it has too is passed over. So a crash loses
// nothing at any moment.
func (s *Set) rewrite(quiet bool) error {
	s.rewriting.Lock()
	defer s.rewriting.Unlock()
	return s.rewriteAlone(quiet)
}

// Erase writes all files anew, so that none has an entry that was removed or has expired. The index follows with its next build.
func (s *Set) Erase(ctx context.Context) error {
	err := s.sweep(s.Now())
	if _, missing := os.Stat(listPath(s.folder)); missing == nil {
		_, foldErr := s.Fold(ctx)
		err = errors.Join(err, foldErr)
	}
	s.rewriting.Lock()
	defer s.rewriting.Unlock()
	s.writing.Lock()
	s.stale = true
	s.writing.Unlock()
	return errors.Join(err, s.rewriteAlone(true))
}

// rewriteAlone is rewrite for who holds rewriting.
func (s *Set) rewriteAlone(quiet bool) error {
	s.writing.Lock()
	if s.journal == nil || !s.due(quiet) {
		s.writing.Unlock()
		return nil
	}
	v := s.view.Load()
	z := frozen{base: v.base, changes: v.sorted(), last: s.last, foldedAt: s.foldedAt, folds: s.folds, cursor: s.cursor, hashes: s.hashes}
	old, size, had := s.journal, s.journal.size, s.records
	s.writing.Unlock()

	snap, err := durable.Create(snapshotPath(s.folder), 0o600)
	if err != nil {
		return err
	}
	defer snap.Discard()
	s.at("snapshot created")
	if err := z.write(snap.File); err != nil {
		return err
	}
	s.at("snapshot written")
	base, err := mapSnapshot(snap.File)
	if err != nil {
		return err
	}
	base.index(s.hashes)

	next, err := durable.Create(journalPath(s.folder), 0o600)
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			next.Discard()
		}
	}()
	head := []byte(secondHead)
	if z.last > 0 {
		r := record{N: z.last, Op: opAfter}
		head = r.append(head)
	}
	if _, err := next.Write(head); err != nil {
		return err
	}
	s.writing.Lock()
	written := old.size
	s.writing.Unlock()
	if _, err := io.Copy(next, io.NewSectionReader(old.f, size, written-size)); errors.Is(err, os.ErrClosed) {
		return nil // another process has the entries now
	} else if err != nil {
		return err
	}
	if err := next.Sync(); err != nil {
		return err
	}
	s.at("journal written")

	s.writing.Lock()
	defer s.writing.Unlock()
	if s.journal != old {
		return nil // closed meanwhile
	}
	if err := snap.Commit(); err != nil {
		return err // the old journal has it all, whichever snapshot is there after a crash
	}
	s.at("snapshot named")
	_, err = io.Copy(next, io.NewSectionReader(old.f, written, old.size-written))
	end, seekErr := next.Seek(0, io.SeekCurrent)
	if err = errors.Join(err, seekErr); err != nil {
		return err
	}
	if err = next.Commit(); err != nil && !next.Committed() {
		return err
	}
	kept = true
	s.at("journal named")
	old.f.Close()
	s.journal, s.records = newJournal(next.File, end), 1+s.records-had
	s.counts.broken.Store(nil)
	s.journal.broken = err // after a crash either file may be there
	s.replace(base, z.last)
	return err
}

// at tells the tests which step of rewrite is done.
func (s *Set) at(step string) {
	if s.step != nil {
		s.step(step)
	}
}

// replace puts a snapshot that has all changes up to a number into the view. The caller holds writing.
func (s *Set) replace(base *snapshot, last uint64) {
	old := s.view.Load()
	var since []*Entry
	for e := range old.delta.all() {
		if e.Number > last {
			since = append(since, e)
		}
	}
	v := newView(base, since, s.hashes)
	if old.lists != nil {
		v = v.serving(old.generation, old.upTo, old.lists)
	}
	s.stale, s.ended = false, 0
	s.view.Store(v)
}
