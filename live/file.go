package live

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"blockd/internal/durable"
)

// journal is the file, open for appending. Every error of it leaves the file as it
// was, or the journal broken.
type journal struct {
	f      *os.File
	size   int64 // of whole records that are synced
	broken error // nothing is written any more: what the disk has is not known
}

func journalPath(folder string) string { return filepath.Join(folder, "journal") }

// append writes lines and syncs them. If it cannot, they are taken back.
func (j *journal) append(lines []byte) error {
	if j.broken != nil {
		return fmt.Errorf("%w: %w", ErrUnwritable, j.broken)
	}
	_, err := j.f.WriteAt(lines, j.size)
	synced := false
	if err == nil {
		// After a failed sync the system may drop what it could not write and say
		// nothing at the next one.
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

// openJournal opens the journal of a folder, which is locked, for writing: a new one if
// there is none. What a crash has left unfinished at its end is cut.
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
	if c.good == 0 { // empty, or less than a head
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

// lock takes the folder for this process, until the file is closed.
func lock(folder string) (*os.File, error) {
	f, err := durable.Lock(filepath.Join(folder, "lock"))
	if errors.Is(err, durable.ErrLocked) {
		err = ErrLocked
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return f, nil
}

// makeFolder makes a folder for whoever owns the one above it.
func makeFolder(path string) error {
	err := os.Mkdir(path, 0o750)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.Mkdir(path, 0o750)
		}
	}
	if err == nil {
		err = giveToOwner(path, filepath.Dir(path))
	}
	return err
}

// giveToOwner gives what root has made to the owner of a folder: an administrator
// may add an entry while the daemon, which runs as another user, is down.
func giveToOwner(path, folder string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return nil
	}
	return os.Lchown(path, int(owner.Uid), int(owner.Gid))
}
