// Package mirror keeps a local copy of a list whose truth is in a database or on another machine: files in the format
// entries, which blockd reads as it reads any list. While the source is away the copy serves on. It changes only after
// the source itself has said that a read is complete, and a process that is killed at any moment leaves the
// copy as it was before or as it was to be.
//
//	current -> g-0000000123/    the generation in force; the link is replaced by a rename
//	g-0000000123/00.ent … 3f.ent    entries, by the top six bits of the XXH3-64 of the key with the seed 0:
//	                                links to the files, which later generations share
//	files/3f-0000000123             a file, named after the generation that has written it; it never changes
//	g-0000000123/state          State, as TOML
//	g-0000000123/journal        changes since the files were written
//	state -> current/state      for people and scripts; journal too
//	lock                        taken while a Mirror is open
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"blockd/internal/durable"
	"blockd/lists"
)

const (
	currentName = "current"
	stateName   = "state"
	journalName = "journal"
	lockName    = "lock"
	filesName   = "files"
	freshName   = currentName + ".new" // the link before it is renamed
)

// DefaultMaxRows is what a source may have: twice of what an index is built for.
const DefaultMaxRows = 200_000_000

// ErrLocked reports that another process keeps this copy.
var ErrLocked = errors.New("another process keeps this copy")

// Options say what a copy is.
type Options struct {
	Folder   string         // it is made if need be; nothing else may be in it
	Settings lists.Settings // of the list: its Action and Subdomains count
	MaxRows  int64          // of the source; 0 = DefaultMaxRows

	turn chan struct{} // of one place, shared by copies of which one sorts at a time; nil = no other one sorts
}

// Mirror is an open copy. It is for one goroutine; the files under Files may be read by anybody at any time.
type Mirror struct {
	folder   string
	settings lists.Settings
	maxRows  int64
	turn     chan struct{} // of Options
	lock     *durable.LockFile

	number  uint64 // of the generation in force; 0 = there is none
	damaged bool   // it is not what was written: only a full read helps
	state   State
	mark    Mark // of the last batch of the journal
	journal journal
	pending pending
	noted   time.Time // when a mark was last written
	known   time.Time // when the source last said that it is the one of State; zero = not since the last error

	confirmed time.Time // of the last Confirm that was written

	step func(what string) error // of tests: before each step of a change on the disk; an error ends it there
}

// Open opens the copy in a folder. Changes that were accepted before a crash are put into its files. The error is ErrLocked, or an
// *Error of the disk.
func Open(o Options) (*Mirror, error) { return open(o, func(string) error { return nil }) }

func open(o Options, step func(string) error) (*Mirror, error) {
	for _, folder := range []string{o.Folder, filepath.Join(o.Folder, filesName)} {
		if err := durable.MakeFolder(folder); err != nil {
			return nil, ofDisk(err)
		}
	}
	lock, err := durable.Lock(filepath.Join(o.Folder, lockName), ErrLocked)
	if errors.Is(err, ErrLocked) {
		return nil, err
	} else if err != nil {
		return nil, ofDisk(err)
	}
	m := &Mirror{folder: o.Folder, settings: o.Settings, maxRows: cmp.Or(o.MaxRows, DefaultMaxRows), turn: o.turn, lock: lock, step: step}
	m.settings.Guard = nil // the gate judges entries when the list is loaded
	if err := m.load(); err != nil {
		m.Close()
		return nil, ofDisk(err)
	}
	return m, nil
}

// Close ends the use of the copy, which stays as it is.
func (m *Mirror) Close() error {
	if m.journal.f != nil {
		m.journal.f.Close()
	}
	return m.lock.Close()
}

// Files is the pattern of the paths of the files of the copy in a folder, as the path of a [[list]].
func Files(folder string) string { return filepath.Join(folder, currentName, "*.ent") }

// State is what the generation in force says of itself; false before the first full read.
func (m *Mirror) State() (State, bool) { return m.state, m.number > 0 }

// load finds the generation in force, removes what others have left, and puts the journal into the files.
func (m *Mirror) load() error {
	if err := m.links(); err != nil {
		return err
	}
	target, err := os.Readlink(filepath.Join(m.folder, currentName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		if m.number = numberOf(target); m.number == 0 {
			return fmt.Errorf("%s leads to %q, which is no generation", currentName, target)
		}
		if err := m.loadGeneration(filepath.Join(m.folder, target)); err != nil {
			return err
		}
	}
	if err := m.sweep(0); err != nil {
		return err
	}
	m.flush() // what fails here fails in Follow again, and is told there; the files serve
	return nil
}

func (m *Mirror) loadGeneration(folder string) (err error) {
	if m.state, err = readState(folder); err != nil {
		m.damaged = true
		return nil
	}
	m.mark = m.state.Mark
	if m.journal.f, err = os.OpenFile(filepath.Join(folder, journalName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o640); err != nil {
		return err
	}
	return m.journal.replay(func(text []byte, mark Mark) {
		m.pending.replay(text)
		m.mark = mark
	})
}

// links makes the links for people.
func (m *Mirror) links() error {
	for _, name := range []string{stateName, journalName} {
		err := os.Symlink(filepath.Join(currentName, name), filepath.Join(m.folder, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// sweep removes what belongs to no generation but the one in force and the former one: somebody may be about to read
// that. 0 = there is none. What this package does not name so is of others, and stays.
func (m *Mirror) sweep(former uint64) error {
	kept := map[string]bool{} // names of files
	for _, number := range []uint64{m.number, former} {
		for n := range files {
			if target, err := os.Readlink(filepath.Join(m.folder, name(number), fileName(n))); err == nil {
				kept[filepath.Base(target)] = true
			}
		}
	}
	for _, folder := range []string{m.folder, filepath.Join(m.folder, filesName)} {
		all, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		for _, e := range all {
			number := numberOf(e.Name())
			old := number > 0 && number != m.number && number != former
			rest := e.Name() == freshName || strings.HasPrefix(e.Name(), ".sort.")
			if folder != m.folder && isFile(e.Name()) && !kept[e.Name()] || folder == m.folder && (old || rest) {
				if err := os.RemoveAll(filepath.Join(folder, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// name is the folder of a generation.
func name(number uint64) string { return fmt.Sprintf("g-%010d", number) }

// numberOf is the number of the generation whose folder has a name; 0 if that is not such a name.
func numberOf(folder string) (number uint64) {
	if _, err := fmt.Sscanf(folder, "g-%d", &number); err != nil || folder != name(number) {
		return 0
	}
	return number
}

// Follow brings the copy up to date with what has changed since the last read. ErrTooOld says that Read is called for: there was no
// read yet, the source is another one, the list's action or scope was edited, it cannot tell its changes any more, or there are too many of
// them. After any other error the copy is as it was, and Follow may be called again.
func (m *Mirror) Follow(ctx context.Context, origin Origin) (*Report, error) {
	if m.number == 0 || m.damaged {
		return nil, ErrTooOld
	}
	if time.Since(m.known) >= knownFor {
		if err := m.know(ctx, origin); err != nil {
			return nil, err
		}
	}
	told, batch := &Report{}, pending{}
	mark, err := origin.Changes(ctx, m.mark, func(c Change) error { return m.collect(&batch, &c, told) })
	if err != nil {
		m.known = time.Time{}
		return nil, ofOrigin(err)
	}
	// After the changes, so that none of another source is taken for one of this.
	if mark != m.mark || len(batch.lines) > 0 {
		if err := m.know(ctx, origin); err != nil {
			return nil, err
		}
	}
	if err := told.judge(); err != nil {
		return nil, err
	}
	if m.state.Entries()+batch.entries()+m.pending.entries() > m.maxRows {
		return nil, ErrTooOld // some of them may be there already: a full read counts
	}
	if err := m.accept(&batch, mark); err != nil {
		return nil, ofDisk(err)
	}
	before := m.number
	if err := m.flush(); errors.Is(err, errDamaged) || errors.Is(err, fs.ErrNotExist) {
		m.damaged = true
		return nil, ErrTooOld
	} else if err != nil {
		return nil, ofDisk(err)
	}
	told.Entries, told.Changed = m.state.Entries(), m.number != before
	return told, nil
}

// knownFor is how long a source that tells of no change is taken for the one that was read. Within it, a poll at which nothing has changed
// costs a database one query.
const knownFor = time.Minute

// know asks a source whether it is the one that was read; ErrTooOld says that it is not.
func (m *Mirror) know(ctx context.Context, origin Origin) error {
	m.known = time.Time{}
	now := time.Now()
	fingerprint, err := origin.Fingerprint(ctx)
	if err != nil {
		return ofOrigin(err)
	}
	if !m.state.readFrom(fingerprint, m.settings) {
		return TooOld("it is another one than was read, or is read otherwise")
	}
	m.known = now
	return nil
}

// collect takes in one change.
func (m *Mirror) collect(batch *pending, c *Change, told *Report) error {
	own, ok := m.line(nil, &Row{Entry: c.Entry, Owner: c.Owner}, &Report{})
	if !ok {
		m.line(nil, &Row{Entry: c.Entry, Owner: c.Owner}, told) // it cannot be in the copy either
		return nil
	}
	id, lines := keyScope(own), []string(nil)
	for i := range c.Rows {
		line, ok := m.line(nil, &c.Rows[i], told)
		switch {
		case !ok:
		case keyScope(line) != id:
			told.refuse(&c.Rows[i], lists.Syntax, fmt.Sprintf("a row of %q among those of %q", cut(c.Rows[i].Entry), cut(c.Entry)))
		default:
			lines = append(lines, string(line))
		}
	}
	slices.Sort(lines)
	batch.put(id, once(lines))
	if batch.size+m.pending.size > maxPending {
		return TooOld("the changes have more than %d MiB", maxPending>>20)
	}
	return nil
}

// once leaves one of sorted lines for each key, action and scope.
func once(sorted []string) (kept []string) {
	for line := range lists.OneOfEach(func(yield func([]byte, error) bool) {
		for _, line := range sorted {
			if !yield([]byte(line), nil) {
				return
			}
		}
	}) {
		kept = append(kept, string(line))
	}
	return kept
}

// accept writes a batch into the journal: from then on the source need not be asked for it again.
func (m *Mirror) accept(batch *pending, mark Mark) error {
	if len(batch.lines) == 0 && (mark == m.mark || time.Since(m.noted) < markEvery) {
		m.mark = mark // a crash costs the reading of a few changes once more
		return nil
	}
	text := encode(slices.Sorted(maps.Keys(batch.lines)), batch.lines, mark)
	if m.journal.size+int64(len(text))+int64(len(text))/maxBlock*blockHead+blockHead > maxJournal {
		if len(m.pending.lines) == 0 {
			return m.renew(m.state.Read, mark)
		}
		if err := m.flush(); err != nil { // which begins a new one
			return err
		}
	}
	if err := m.step("append to the journal"); err != nil {
		return err
	}
	if err := m.journal.append(text); err != nil {
		return err
	}
	for id, lines := range batch.lines {
		m.pending.put(id, lines)
	}
	m.mark, m.noted = mark, time.Now()
	return nil
}

// markEvery is how often a mark that came without changes is written down: many sources give another one at each poll.
const markEvery = time.Minute

// Confirmed is when the source was last asked with success, as far as the copy's folder tells; zero = never. It may be up to a
// minute before that.
func (m *Mirror) Confirmed() time.Time {
	info, err := m.lock.Stat()
	if err != nil || m.number == 0 || info.ModTime().Before(m.state.Read) {
		return m.state.Read
	}
	return info.ModTime()
}

// Confirm notes that the source was asked with success at a moment: it is the time of the file "lock".
func (m *Mirror) Confirm(at time.Time) {
	if at.Sub(m.confirmed) >= markEvery {
		m.confirmed = at
		os.Chtimes(m.lock.Name(), at, at) // without it the copy looks older than it is
	}
}
