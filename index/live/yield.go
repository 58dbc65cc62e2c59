package live

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"blockd/internal/durable"
	"blockd/internal/stamp"
)

// ErrYielded is the error of a change after Yield.
var ErrYielded = errors.New("another process changes the live entries now; ask it")

// OpenFollowing opens the live entries of a folder that another process has and will yield: as if this one had yielded them
// to it. Resume takes them.
func OpenFollowing(s Settings) (*Set, error) {
	c, err := readFolder(s.Folder, s.Hashes)
	if err != nil {
		return nil, err
	}
	set := newSet(s, c)
	set.yielded = true
	return set, nil
}

// Yield lets another process open the live entries. What was acknowledged is in the files. From here on changes fail with
// ErrYielded, while look-ups go on, and Follow reads what that process changes. Yield once, and then Close or Resume.
func (s *Set) Yield() error {
	s.folding.Lock() // a list file under way is recorded first
	defer s.folding.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.journal == nil {
		return os.ErrClosed
	}
	err := errors.Join(s.journal.f.Close(), s.lock.Close())
	s.journal, s.yielded = nil, true
	return err
}

// Follow takes up what the process that has the live entries now has changed since the last call. If nothing has changed
// it costs one look at a file. The error is that of the files; then the entries are as they were.
func (s *Set) Follow() error {
	path := journalPath(s.folder)
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.yielded || s.followed != nil && info != nil && stamp.Same(s.followed, info) {
		return nil
	}
	c, err := readFolder(s.folder, s.hashes)
	if err != nil {
		return err
	}
	s.followed = info // of before the reading: what comes meanwhile is read the next time
	s.become(c)
	return nil
}

// Resume takes the live entries back, with all that another process has changed since Yield; ErrLocked while it has them.
func (s *Set) Resume() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.yielded {
		return nil
	}
	for _, folder := range []string{s.folder, listFolder(s.folder)} {
		if err := durable.MakeFolder(folder); err != nil { // it may never have been opened
			return err
		}
	}
	lock, err := durable.Lock(filepath.Join(s.folder, "lock"), ErrLocked)
	if err != nil {
		return fmt.Errorf("%s: %w", s.folder, err)
	}
	j, c, err := openJournal(s.folder, s.hashes)
	if err != nil {
		lock.Close()
		return err
	}
	s.become(c)
	s.journal, s.lock, s.yielded, s.followed = j, lock, false, nil
	return nil
}
