package live

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"blockd/internal/durable"
	"blockd/mail/digest"
)

// journal is the journal's file, open for appending. After an error of append the file is as
// before, or the journal is broken.
type journal struct {
	f      *os.File
	size   int64        // octets of whole, synced records
	broken error        // if set, nothing more is written, because the content of the disk is unknown
	sync   func() error // f.Sync; tests let it fail
}

func newJournal(f *os.File, size int64) *journal { return &journal{f: f, size: size, sync: f.Sync} }

func journalPath(folder string) string { return filepath.Join(folder, "journal") }

// append writes lines and syncs them. If that fails, it removes them again.
func (j *journal) append(lines []byte) error {
	if j.broken != nil {
		return fmt.Errorf("%w: %w", ErrUnwritable, j.broken)
	}
	_, err := j.f.WriteAt(lines, j.size)
	synced := false
	if err == nil {
		// After a failed sync the system may drop what it could not write, and report no error
		// at the next sync.
		err, synced = j.sync(), true
	}
	if err == nil {
		j.size += int64(len(lines))
		return nil
	}
	if cut := j.f.Truncate(j.size); cut != nil || synced {
		j.broken = errors.Join(err, cut)
	}
	return fmt.Errorf("%w: %w", ErrUnwritable, err)
}

// openJournal opens the journal of a locked folder for writing, and makes it if it is missing.
// It cuts an unfinished record from its end.
func openJournal(folder string, hashes digest.Set) (*journal, *contents, error) {
	path := journalPath(folder)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		// A journal is never gone but by hand, and a snapshot alone is what was in force when it was written.
		if err := durable.WriteFile(path, []byte(journalHead), 0o600); err != nil {
			return nil, nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}
	c, err := readFrom(folder, f, hashes)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	if c.good == 0 { // the file is empty, or its head is unfinished
		if _, err = f.WriteAt([]byte(journalHead), 0); err == nil {
			c.good = int64(len(journalHead))
		}
	}
	if err == nil {
		err = errors.Join(f.Truncate(c.good), f.Sync())
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return newJournal(f, c.good), c, nil
}

// readFrom reads the snapshot of a folder and the journal, which was opened before: so the snapshot is
// the one that the journal goes on from, or a newer one, whatever another process does.
func readFrom(folder string, journal *os.File, hashes digest.Set) (*contents, error) {
	c := &contents{entries: map[identity]*Entry{}}
	base, rest, err := openSnapshot(folder, hashes)
	if err != nil {
		return nil, err
	}
	var head *snapshotHead
	switch {
	case base != nil:
		c.base, head = base, &base.snapshotHead
		c.stale = base.snapshotHead.hashes != hashes && hashes != 0
	case rest != nil:
		head, c.stale, c.damage, c.damaged = &rest.snapshotHead, true, rest.damage, rest.damaged
		for _, e := range rest.entries {
			c.entries[e.identity()] = e
		}
	}
	if head != nil {
		c.cursor = head.cursor
		c.last, c.behind, c.folded, c.folds = head.last, head.last, head.foldedAt, head.folds
		c.shared = head.last
	}
	if c, err = readJournal(journal, c); err != nil {
		return nil, fmt.Errorf("%s: %w", journal.Name(), err)
	}
	if c.after > c.behind {
		return nil, fmt.Errorf("%s: %w", snapshotPath(folder), errSnapshotGone)
	}
	return c, nil
}

// readFolder reads the files of a folder that another process may have. A missing folder has no entries.
func readFolder(folder string, hashes digest.Set) (*contents, error) {
	f, err := os.Open(journalPath(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return &contents{entries: map[identity]*Entry{}}, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	return readFrom(folder, f, hashes)
}
