package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// handOver gives what root has made at path, and under names that begin with it
// (the lock, the cache, the note of --accept), to who owns its folder: the daemon,
// which runs as a user of its own. It would find the file that an administrator has
// compiled for it, and could not open it. For other users it does nothing.
//
// The folder is not root's, so its owner may exchange names while we walk: os.Root
// follows nothing out of it, and a file with a second name elsewhere is left alone.
func handOver(path string) error {
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
		case !strings.HasPrefix(name, base):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		made, ok := info.Sys().(*syscall.Stat_t)
		if !ok || made.Uid != 0 || info.Mode().IsRegular() && made.Nlink > 1 {
			return nil
		}
		return root.Lchown(name, int(owner.Uid), int(owner.Gid))
	})
}
