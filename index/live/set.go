package live

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"blockd/internal/durable"
	"blockd/lists"
	"blockd/mail/digest"
	"blockd/records/audit"
)

// Settings configure a Set.
type Settings struct {
	Folder string       // the folder of the files; Open makes it if it is missing
	Guard  *lists.Guard // what an entry may not cover unless it is forced; nil = no limit
	Hashes digest.Set   // the digests that AddressOf knows addresses by
	// MaxPerOwner is how many entries an owner may have; 0 = any number up to MaxEntries.
	MaxPerOwner int
	Audit       *audit.Log // has a line for each change before it is made; without it, none is made. nil = none is written

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
	audit   *audit.Log
	compact int // compactFrom
	most    int // MaxPerOwner

	view   atomic.Pointer[view] // the entries; changed only with writing held
	hashes digest.Set

	share  atomic.Pointer[Share] // nil: the entries are of this machine alone
	offset atomic.Int64          // see Now; in nanoseconds

	requests requests // of Apply; a leader takes writing

	folding   sync.Mutex // held by Fold, and taken before writing
	rewriting sync.Mutex // held by rewrite, likewise

	writing  sync.Mutex  // guards the fields below, and is held during writes to the disk
	journal  *journal    // nil: the Set is read only, yielded or closed
	yielded  bool        // see Yield
	followed os.FileInfo // of Follow
	lock     *durable.LockFile
	last     uint64 // the highest number that was used
	shared   uint64 // the number of the last change of an entry of everybody
	folds    []fold
	cursor   Cursor // of the engine
	sum      *Sum   // nil: it is not known
	foldedAt uint64 // last, when the last fold had all entries; 0: it has not
	records  int    // in the journal
	stale    bool   // the snapshot has to be written anew
	ended    int    // so many of the snapshot's entries that end have been swept

	held atomic.Int64 // number of entries
	step func(string) // called between the steps of rewrite; nil but in tests

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
	j, c, err := openJournal(s.Folder, s.Hashes)
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
	c, err := readFolder(folder, 0)
	if err != nil {
		return nil, err
	}
	return newSet(Settings{Folder: folder}, c), nil
}

func newSet(s Settings, c *contents) *Set {
	set := &Set{folder: s.Folder, guard: s.Guard, audit: s.Audit, hashes: s.Hashes, compact: cmp.Or(s.compactFrom, defaultCompactFrom), most: s.MaxPerOwner,
		damage: c.damage, damaged: c.damaged, tidy: make(chan struct{}, 1)}
	set.become(c)
	return set
}

// become makes the entries those of c. The view belongs to no generation, or to the one that it belonged
// to. The caller holds writing.
func (s *Set) become(c *contents) {
	v := newView(c.base, slices.Collect(maps.Values(c.entries)), s.hashes)
	s.last, s.shared, s.folds, s.foldedAt, s.records, s.stale, s.ended = c.last, c.shared, c.folds, c.folded, c.records, c.stale, 0
	s.cursor, s.sum = c.cursor, nil
	s.held.Store(int64(v.all()))
	if old := s.view.Load(); old != nil && old.lists != nil {
		v = v.serving(old.generation, old.upTo, old.lists)
	}
	s.view.Store(v)
	if s.due(false) || v.fresh.Load() >= foldFrom {
		s.wakeRun()
	}
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

// All returns the entries of everybody in force, the newest first, as they are when the iteration begins. Those of an owner
// Of has.
// It makes each as it goes: a loop that does not keep them costs some memory for the changes since
// the snapshot alone.
func (s *Set) All() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		v, now := s.view.Load(), s.Now().Unix()
		changes := v.sorted()
		for _, e := range slices.Backward(changes) {
			if !e.gone && e.Item.Owner.Text == "" && !e.expired(now) && !yield(e) {
				return
			}
		}
		if v.base == nil {
			return
		}
		changed := v.base.changedBy(changes)
		for i := v.base.count - 1; i >= 0; i-- {
			if changed.has(i) {
				continue
			}
			if end := v.base.expiry(i); end != 0 && end <= now || v.base.owned(i) {
				continue
			}
			if !yield(v.base.entry(i)) {
				return
			}
		}
	}
}

// Len returns the number of entries, with those that have expired since the last sweep.
func (s *Set) Len() int { return int(s.held.Load()) }

// InForce returns the number of entries in force, and the number of the last change.
func (s *Set) InForce() (n int, last uint64) {
	s.writing.Lock()
	defer s.writing.Unlock()
	n = s.Len()
	for range s.expired(s.Now()) {
		n--
	}
	return n, s.last
}

// byNumber orders entries by their numbers.
func byNumber(a, b *Entry) int { return cmp.Compare(a.Number, b.Number) }

// Problems returns what administrators must know of the files, a line each.
func (s *Set) Problems() (problems []string) {
	if s == nil {
		return nil
	}
	for _, d := range s.damage {
		if d.Path == "" {
			d = Damage{journalPath(s.folder), d.Line, "damaged, and left out: " + d.Why}
		}
		if d.Line == 0 {
			problems = append(problems, fmt.Sprintf("%s: %s", d.Path, d.Why))
			continue
		}
		problems = append(problems, fmt.Sprintf("%s:%d: %s", d.Path, d.Line, d.Why))
	}
	if more := s.damaged - len(s.damage); more > 0 {
		problems = append(problems, fmt.Sprintf("%s: %d more damaged lines and records", s.folder, more))
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
	return s.apply(&request{changes: changes})
}

func (s *Set) apply(r *request) ([]Outcome, error) {
	r.now, r.turn, r.wanted = s.Now(), make(chan bool, 1), make([]*Entry, len(r.changes))
	for i, c := range r.changes {
		var err error
		if r.wanted[i], err = s.wanted(c, r.now); err != nil {
			return nil, err
		}
	}
	if share := s.share.Load(); share != nil {
		err := s.applyShared(share, r)
		return r.outcomes, err
	}
	s.join(r)
	return r.outcomes, r.err
}

// wanted returns the entry that a change asks for; of a removal only its identity counts.
func (s *Set) wanted(c Change, now time.Time) (*Entry, error) {
	if c.Remove {
		return newEntry(Change{Owner: c.Owner, Entry: c.Entry, Why: c.Why, Author: c.Author}, nil, now)
	}
	return newEntry(c, s.guard, now)
}

// write appends records to the journal.
func (s *Set) write(records []record) error {
	if s.journal == nil {
		return fmt.Errorf("%w: they are closed", ErrUnwritable)
	}
	var lines []byte
	setParts(records)
	for i := range records {
		lines = records[i].append(lines)
	}
	if err := s.journal.append(lines); err != nil {
		s.counts.failed(err)
		s.wakeRun() // a journal that is broken is written anew
		return err
	}
	s.counts.broken.Store(nil)
	if s.records += len(records); s.due(false) {
		s.wakeRun()
	}
	return nil
}

// act makes look-ups see what has changed; what is removed is there as an entry that is gone.
func (s *Set) act(after map[identity]*Entry) {
	v := s.view.Load()
	for id, e := range after {
		personal := e.Item.Personal() // the index never has these
		if !personal {
			s.shared = max(s.shared, e.Number)
		}
		was := v.get(id)
		s.sum.replace(was, e)
		if was != nil {
			if !personal && was.newTo(v.upTo) {
				defer v.fresh.Add(-1) // only when all is there: a look-up that sees 0 searches nothing
			}
			s.held.Add(-1)
		}
		if !e.gone {
			if !personal {
				v.fresh.Add(1)
			}
			s.held.Add(1)
		}
		v.set(e)
	}
	if v.fresh.Load() >= foldFrom {
		s.wakeRun()
	}
}
