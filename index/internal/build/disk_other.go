//go:build !linux

package build

import (
	"os"

	"golang.org/x/sys/unix"
)

func unnamedFile(path string) (int, error) { return unlinkedFile(path) }

func pwritev(fd int, pieces [][]byte, offset int64) (int, error) {
	return unix.Pwrite(fd, pieces[0], offset)
}

func setDirect(int, bool) error { return nil }

func startWriting(*os.File, int64, int64) {}

func openDirect(string) *os.File { return nil }
