package build

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// unnamedFile makes a file that is in no folder, on the file system of path.
func unnamedFile(path string) (int, error) {
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return fd, nil
	}
	// NFS, and overlays of old kernels, know no O_TMPFILE.
	return unlinkedFile(path)
}

// pwritev writes pieces one behind the other, perhaps not all.
func pwritev(fd int, pieces [][]byte, offset int64) (int, error) {
	for {
		n, err := unix.Pwritev(fd, pieces, offset)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// setDirect makes reads and writes of an open file go past the system's cache, or
// through it.
func setDirect(fd int, direct bool) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags &^= unix.O_DIRECT; direct {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	return err
}

// startWriting asks the system to begin to bring a part of f to the disk. It waits
// for nothing but room in the disk's queue.
func startWriting(f *os.File, offset, n int64) {
	// It is a wish: the sync at the end tells of a disk that fails.
	_ = unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE)
}

// openDirect opens the file at path for reads and writes past the system's cache.
// nil: its file system has none.
func openDirect(path string) *os.File {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	return f
}
