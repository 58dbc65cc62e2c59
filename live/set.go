package live

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"blockd/digest"
	"blockd/internal/durable"
	"blockd/lists"
)

// Settings configure a Set.
type Settings struct {
	Folder string       // the folder of the files; Open makes it if it is missing
	Guard  *lists.Guard // what an entry may not cover unless it is forced; nil = no limit
	Hashes digest.Set   // the digests that AddressOf knows addresses by

	// compactFrom is the number of lines above which an overgrown journal is written anew; 0 =
	// defaultCompactFrom.
	compactFrom int
}

// defaultCompactFrom lines are some 200 KB, which are not worth the writing.
const defaultCompactFrom = 1000

// Set holds the live entries. Its methods may be called from several goroutines at once. Amend
// takes no lock and never waits for the disk.
type Set struct {
	folder  string
	guard   *lists.Guard
	compact int // compactFrom

	view atomic.Pointer[view] // for Amend
	all  *table               // for Amend; changed only with writing held

	hashes  digest.Set
	digests *table // for AddressOf: the entries of addresses by their digests; changed only with writing held

	requests requests // of Apply; a leader takes writing

	folding sync.Mutex // held by Fold, and taken before writing

	writing  sync.Mutex // guards the fields below, and is held during writes to the disk
	journal  *journal   // nil: the Set is read only, yielded or closed
	yielded  bool       // see Yield
	followed stamp      // of Follow
	lock     *os.File
	last     uint64 // the highest number that was used
	folds    []fold
	foldedAt uint64 // last, when the last fold had all entries; 0: it has not
	records  int    // in the journal

	mu      sync.RWMutex // guards entries for readers; a change holds writing too
	entries map[identity]*Entry

	damage  []Damage // damaged lines that Open or Read found
	damaged int
	counts  counts
	tidy    chan struct{} // wakes Run
}

// Open opens the live entries of a folder for this process alone; ErrLocked if another one has
// them. It cuts what a crash has left unfinished; see also Problems.
func Open(s Settings) (*Set, error) {
	for _, folder := range []string{s.Folder, listFolder(s.Folder)} {
		if err := durable.MakeFolder(folder); err != nil {
			return nil, err
		}
	}
	lock, err := durable.Lock(filepath.Join(s.Folder, "lock"), ErrLocked)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Folder, err)
	}
	j, c, err := openJournal(s.Folder)
	if err != nil {
		lock.Close()
		return nil, err
	}
	set := newSet(s, c)
	set.journal, set.lock = j, lock
	return set, nil
}

// Read returns the live entries of a folder as they are now, for look-ups and to be shown. They
// cannot be changed, and do not change with the files. A missing folder has none.
func Read(folder string) (*Set, error) {
	c, err := readFolder(folder)
	if err != nil {
		return nil, err
	}
	return newSet(Settings{Folder: folder}, c), nil
}

// readFolder reads the files of a folder that another process may have.
func readFolder(folder string) (*contents, error) {
	f, err := os.Open(journalPath(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return &contents{entries: map[identity]*Entry{}}, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := readJournal(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return c, nil
}

func newSet(s Settings, c *contents) *Set {
	set := &Set{folder: s.Folder, guard: s.Guard, hashes: s.Hashes, digests: newTable(), compact: cmp.Or(s.compactFrom, defaultCompactFrom),
		all: newTable(), last: c.last, folds: c.folds, foldedAt: c.folded, records: c.records, entries: c.entries, damage: c.damage, damaged: c.damaged,
		tidy: make(chan struct{}, 1)}
	for _, e := range c.entries {
		set.set(e)
	}
	set.view.Store(&view{newer: set.all}) // this view belongs to no generation
	return set
}

// Close closes the files. They have all that was acknowledged.
func (s *Set) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.journal == nil {
		return nil
	}
	err := errors.Join(s.journal.f.Close(), s.lock.Close())
	s.journal = nil
	return err
}

// Entries returns all entries in force, the newest first.
func (s *Set) Entries() []*Entry {
	now := time.Now().Unix()
	all := slices.DeleteFunc(s.sorted(), func(e *Entry) bool { return e.expired(now) })
	slices.Reverse(all)
	return all
}

// sorted returns all entries in the order of their numbers.
func (s *Set) sorted() []*Entry {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.entries))
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b *Entry) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// Len returns the number of entries, with those that have expired since the last sweep.
func (s *Set) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.entries)
}

// Problems returns what administrators must know of the files, a line each.
func (s *Set) Problems() (problems []string) {
	if s == nil {
		return nil
	}
	for _, d := range s.damage {
		problems = append(problems, fmt.Sprintf("%s:%d: damaged, and left out: %s", journalPath(s.folder), d.Line, d.Why))
	}
	if more := s.damaged - len(s.damage); more > 0 {
		problems = append(problems, fmt.Sprintf("%s: %d more damaged lines", journalPath(s.folder), more))
	}
	if err := s.counts.broken.Load(); err != nil {
		problems = append(problems, "live entries: "+(*err).Error())
	}
	return problems
}

// Apply makes all changes, in order, or none. When it returns they act on every look-up that
// begins, and are on the disk. A change that asks for what is there already changes nothing.
// The error wraps one of this package and says which change it is about; a change that cannot
// be written leaves everything as it was. Calls that come while the disk is busy share one sync,
// and its failure.
func (s *Set) Apply(changes ...Change) ([]Outcome, error) {
	now := time.Now()
	wanted := make([]*Entry, len(changes))
	for i, c := range changes {
		var err error
		if wanted[i], err = s.wanted(c, now); err != nil {
			return nil, err
		}
	}
	r := &request{changes: changes, wanted: wanted, now: now, turn: make(chan bool, 1)}
	s.join(r)
	return r.outcomes, r.err
}

// wanted returns the entry that a change asks for; of a removal only its identity counts.
func (s *Set) wanted(c Change, now time.Time) (*Entry, error) {
	if c.Remove {
		return newEntry(Change{Entry: c.Entry, Author: c.Author}, nil, now)
	}
	return newEntry(c, s.guard, now)
}

// write appends records to the journal.
func (s *Set) write(records []record) error {
	if s.journal == nil {
		return fmt.Errorf("%w: they are closed", ErrUnwritable)
	}
	var lines []byte
	for i := range records {
		lines = records[i].append(lines)
	}
	if err := s.journal.append(lines); err != nil {
		s.counts.failed(err)
		s.wakeRun() // a journal that is broken is written anew
		return err
	}
	s.counts.broken.Store(nil)
	if s.records += len(records); s.overgrown() {
		s.wakeRun()
	}
	return nil
}

// act makes look-ups see what has changed.
func (s *Set) act(after map[identity]*Entry) {
	newer := s.view.Load().newer
	for id, e := range after {
		if e == nil {
			s.remove(id)
			newer.remove(id)
			continue
		}
		s.set(e)
		newer.set(e)
	}
	if newer.held >= foldFrom {
		s.wakeRun()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range after {
		if e == nil {
			delete(s.entries, id)
		} else {
			s.entries[id] = e
		}
	}
}
