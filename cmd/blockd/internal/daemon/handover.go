package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// HandOver gives what root has made at path, in it, and under names that go on from it
// with a dot (the lock, the cache, the note of --accept), to who owns its folder: the
// daemon, which runs as a user of its own. It would find the file that an administrator
// has compiled for it, and could not open it. For other users it does nothing.
//
// The folder is not root's, so its owner may exchange names while we walk: os.Root
// follows nothing out of it, and a file with a second name elsewhere is left alone.
func HandOver(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	folder, base := filepath.Split(path)
	root, err := os.OpenRoot(filepath.Clean(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was made there
	}
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return nil
	}
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile: nothing to give
			return nil
		case err != nil:
			return err
		case name == ".":
			return nil
		case name != base && !strings.HasPrefix(name, base+".") && !strings.HasPrefix(name, base+"/"):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.IsDir() && !entry.Type().IsRegular() {
			return nil // we make no others
		}
		return giveTo(owner, root, name)
	})
}

// giveTo gives one file or folder of root's to owner. It is looked at and given by one
// descriptor: what is put under its name in between is not given. That nobody links a file
// of root's there and unlinks it as we look is the system's to see to
// (fs.protected_hardlinks, 1 wherever systemd starts it).
func giveTo(owner *syscall.Stat_t, root *os.Root, name string) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe put there would keep us waiting
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	made, ok := info.Sys().(*syscall.Stat_t)
	if !ok || made.Uid != 0 || !info.IsDir() && (!info.Mode().IsRegular() || made.Nlink > 1) {
		return nil
	}
	return f.Chown(int(owner.Uid), int(owner.Gid))
}
