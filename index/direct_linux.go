package index

import (
	"os"

	"golang.org/x/sys/unix"
)

// openDirect opens the file at path for reads and writes past the system's cache.
// nil: its file system has none.
func openDirect(path string) *os.File {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	return f
}
