package live

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"blockd/internal/durable"
)

const (
	// tidyEvery is how long an expired entry may take up room.
	tidyEvery = time.Minute

	// foldFrom is how many entries an index may lack before a build is due. Fewer cost a
	// look-up nothing that can be measured.
	foldFrom = 1000
)

// Run tidies up until ctx ends, and then returns nil. It removes expired entries, writes a
// journal anew that is more of the past than of the present, and writes the list of entries
// when the index lacks many of them, whose change a Reloader sees.
func (s *Set) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	var folded time.Time
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			err = s.sweep(time.Now())
		case <-s.tidy:
		}
		if time.Since(folded) >= tidyEvery && s.newer() >= foldFrom {
			folded = time.Now()
			_, foldErr := s.Fold(ctx)
			err = errors.Join(err, foldErr)
		}
		if err = errors.Join(err, s.rewrite()); err != nil && ctx.Err() == nil {
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
func (s *Set) newer() int {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.view.Load().newer.held
}

// Tidy removes expired entries, and writes the journal anew if it is overgrown or broken.
func (s *Set) Tidy() error {
	return errors.Join(s.sweep(time.Now()), s.rewrite())
}

// sweep removes expired entries, with records like any removal: a clock that is set back must
// not bring back an entry that an index was built without.
func (s *Set) sweep(now time.Time) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	var changes []Change
	var gone []*Entry
	for _, e := range s.entries {
		if e.expired(now.Unix()) {
			changes, gone = append(changes, Change{Remove: true}), append(gone, e)
		}
	}
	if s.journal == nil || len(gone) == 0 {
		return nil
	}
	st := s.stage()
	_, err := st.add(changes, gone, now)
	if err == nil {
		err = s.commit(st)
	}
	if err == nil {
		s.counts.expired.Add(uint64(len(gone)))
	}
	return err
}

// overgrown reports whether the journal is long and more than half of it of the past.
func (s *Set) overgrown() bool {
	return s.records > s.compact && s.records > 2*(len(s.entries)+len(s.folds)+1)
}

// rewrite writes the journal anew if it is overgrown or broken. Changes may be made while most
// of it is written; they are copied at the end.
func (s *Set) rewrite() error {
	s.writing.Lock()
	if s.journal == nil || !s.overgrown() && s.journal.broken == nil {
		s.writing.Unlock()
		return nil
	}
	records := s.present()
	old, size, had := s.journal, s.journal.size, s.records
	s.writing.Unlock()

	d, err := durable.Create(journalPath(s.folder), 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if !d.Committed() {
			d.Discard()
		}
	}()
	f := d.File
	if err := writeRecords(f, records); err != nil {
		return err
	}

	s.writing.Lock()
	defer s.writing.Unlock()
	if s.journal != old {
		return nil // closed meanwhile
	}
	_, err = io.Copy(f, io.NewSectionReader(old.f, size, old.size-size))
	end, seekErr := f.Seek(0, io.SeekCurrent)
	if err = errors.Join(err, seekErr); err != nil {
		return err
	}
	if err = d.Commit(); err != nil && !d.Committed() {
		return err
	}
	old.f.Close()
	s.journal, s.records = &journal{f: f, size: end}, len(records)+s.records-had
	s.counts.broken.Store(nil)
	s.journal.broken = err // after a crash either file may be there
	return err
}

// present returns the records of what is in force. The caller holds writing.
func (s *Set) present() (all []record) {
	for _, e := range s.sorted() {
		all = append(all, recordOf(e))
	}
	for _, f := range s.folds {
		all = append(all, f.record())
	}
	slices.SortFunc(all, func(a, b record) int { return cmp.Compare(a.N, b.N) })
	if s.last > 0 && (len(all) == 0 || all[len(all)-1].N != s.last) {
		all = append(all, record{N: s.last, Op: opBase})
	}
	return all
}

func writeRecords(f *os.File, records []record) error {
	w := bufio.NewWriterSize(f, 64<<10)
	w.WriteString(journalHead)
	var line []byte
	for i := range records {
		line = records[i].append(line[:0])
		w.Write(line)
	}
	return errors.Join(w.Flush(), f.Sync())
}
