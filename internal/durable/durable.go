// Package durable replaces files whole. There is one rule for all of them: the new
// content is written beside the old file and synced, renamed over it, and the folder is
// synced. After a crash at any moment the path has the old content or the new one, and
// after Commit has returned it has the new one.
//
// What root writes and locks belongs to the owner of the file that it replaces, or else to the
// owner of the folder: an administrator runs a command beside a daemon that has a user
// of its own.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Replace puts what write writes in place of the file at path, or leaves that as it is
// and returns why. mode is the new file's, whatever the umask. A link at path is
// replaced; what it points to stays as it is.
func Replace(path string, mode fs.FileMode, write func(io.Writer) error) error {
	d, err := Create(path, mode)
	if err != nil {
		return err
	}
	defer d.Discard()
	if err := write(d); err != nil {
		return err
	}
	return d.Commit()
}

// WriteFile is Replace with a text.
func WriteFile(path string, text []byte, mode fs.FileMode) error {
	return Replace(path, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// Draft is a file that is to take the place of another. It is for one goroutine.
type Draft struct {
	*os.File  // open for reading and writing; after Commit it is the file at the path
	path      string
	ended     bool // there is no draft any more
	committed bool
}

// draftAge is when the draft of a process that was killed may go: no draft takes so long.
const draftAge = 24 * time.Hour

// Create opens a draft in the folder of path, under a hidden name of its own: in a
// folder of another user's a known name could be a link that leads elsewhere.
func Create(path string, mode fs.FileMode) (*Draft, error) {
	folder, name := filepath.Split(path)
	folder = filepath.Clean(folder)
	sweep(folder, name)
	f, err := os.CreateTemp(folder, "."+name+".*.new")
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) { // the folder is at fault, and not the draft's name
		err = &fs.PathError{Op: "create a file in", Path: folder, Err: failed.Err}
	}
	if err != nil {
		return nil, err
	}
	d := &Draft{File: f, path: path}
	if err := errors.Join(f.Chmod(mode), keepOwner(f, path, folder)); err != nil {
		d.Discard()
		return nil, err
	}
	return d, nil
}

// Commit gives the draft its name, when it is safe on the disk. It leaves the file open.
// After an error the path has the old content or, if the folder's sync failed, perhaps
// the new one.
func (d *Draft) Commit() error {
	if d.ended {
		return fmt.Errorf("%s: %w", d.path, os.ErrClosed)
	}
	if err := d.Sync(); err != nil {
		return err
	}
	if err := os.Rename(d.Name(), d.path); err != nil {
		return err
	}
	d.ended, d.committed = true, true
	return SyncFolder(filepath.Dir(d.path))
}

// Committed reports whether the draft has its name, also where the folder's sync failed
// after that.
func (d *Draft) Committed() bool { return d.committed }

// Discard closes the draft, and removes it unless it was committed. It may be called
// twice, so defer it.
func (d *Draft) Discard() {
	d.Close()
	if !d.ended {
		d.ended = true
		os.Remove(d.Name())
	}
}

// Rename gives a file that was written under another name, perhaps in another folder, its
// place at path: the last steps of the rule, for drafts that need a folder of their own.
func Rename(f *os.File, path string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes it last what was created, renamed or removed in a folder.
func SyncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// MakeFolder makes a folder with the mode 0750, unless it is there, and those above it.
func MakeFolder(path string) error {
	if err := NoTrap(path); err != nil {
		return err
	}
	path = filepath.Clean(path) // of "folder/" the folder around it would be "folder"
	parent := filepath.Dir(path)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o750); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return keepOwner(f, path, parent)
}

// NoTrap refuses a link at path that another user than root has put there, where this process is root: what root
// writes beside the index of a daemon that has a user of its own would go wherever that one leads. Links that root
// has made lead to another disk, and are followed.
func NoTrap(path string) error {
	info, err := os.Lstat(path)
	if err != nil || os.Geteuid() != 0 || info.Mode().Type() != fs.ModeSymlink {
		return nil
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
		return fmt.Errorf("%s is a link that user %d has put there, and root does not follow it; remove it", path, owner.Uid)
	}
	return nil
}

// Lock takes the lock file at path, making it if need be, or returns locked at once if
// another process holds it. The file stays: to remove it would race with the next to lock it.
// A link at path is not followed.
func Lock(path string, locked error) (*LockFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	held := (*LockFile)(nil)
	if err = keepOwner(f, path, filepath.Dir(path)); err == nil {
		held, err = Hold(f, locked)
	}
	if err != nil {
		f.Close()
	}
	return held, err
}

// LockFile is a file that this process has locked, until it closes the file or ends. A process that was handed the
// file holds it, too.
type LockFile struct{ *os.File }

// Hold locks an open file, or returns locked at once if somebody else holds it.
func Hold(f *os.File, locked error) (*LockFile, error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, locked
	} else if err != nil {
		return nil, err
	}
	return &LockFile{f}, nil
}

// Close ends the lock and closes the file. Closing alone would leave it locked for some milliseconds more whenever
// another goroutine starts a program just then: between fork and exec that one has every file of this process.
func (l *LockFile) Close() error {
	return errors.Join(unix.Flock(int(l.Fd()), unix.LOCK_UN), l.File.Close())
}

// WaitLock is Lock, which waits for another process that holds the file, for so long at the most.
func WaitLock(path string, patience time.Duration, locked error) (f *LockFile, err error) {
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		if f, err = Lock(path, locked); !errors.Is(err, locked) || time.Since(begun) > patience {
			return f, err
		}
	}
}

// keepOwner gives what root has made to the owner of the file at path, or of the folder
// where there is no such file, or root has made that too.
func keepOwner(f *os.File, path, folder string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
			return f.Chown(int(owner.Uid), int(owner.Gid))
		}
	}
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
		return f.Chown(int(owner.Uid), int(owner.Gid))
	}
	return nil
}

// sweep removes drafts that killed processes have left. One that cannot be removed harms
// nothing.
func sweep(folder, name string) {
	old, err := filepath.Glob(filepath.Join(folder, "."+name+".*.new"))
	if err != nil {
		return // the name has a bracket
	}
	for _, path := range old {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > draftAge {
			os.Remove(path)
		}
	}
}
