package live

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"blockd/internal/durable"
)

// journal is the journal's file, open for appending. After an error of append the file is as
// before, or the journal is broken.
type journal struct {
	f      *os.File
	size   int64 // octets of whole, synced records
	broken error // if set, nothing more is written, because the content of the disk is unknown
}

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
		err, synced = j.f.Sync(), true
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
func openJournal(folder string) (*journal, *contents, error) {
	path := journalPath(folder)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := durable.WriteFile(path, []byte(journalHead), 0o600); err != nil {
			return nil, nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	c, err := readJournal(f)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
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
	return &journal{f: f, size: c.good}, c, nil
}
