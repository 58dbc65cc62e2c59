package spool

import (
	"os"

	"golang.org/x/sys/unix"
)

// withoutName opens a file that has no name (O_TMPFILE: not NFS, not overlayfs of old kernels).
func withoutName(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "copy of a message"), nil
}
