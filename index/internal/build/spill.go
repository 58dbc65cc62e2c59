package build

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// iovMax is how many pieces of memory one system call takes.
const iovMax = 1024

var (
	// errTemporary is in every error of the disk that holds the temporary file: what
	// is at fault is no source, though it shows at one of its lines.
	errTemporary = errors.New("temporary file")

	// errSpill reports a disk that gave back other octets than were written.
	errSpill = fmt.Errorf("%w is damaged", errTemporary)
)

// spillFile is the temporary file of a build. It has no name, so nothing of it is
// left whatever happens to the process. It is made when it is first needed, and read
// and written past the system's cache, as long as the file system does so with the
// sizes and places that come.
type spillFile struct {
	path  string // of the index that it lies beside
	hooks Hooks

	mu   sync.Mutex // guards what follows
	fd   int        // -1: not made yet
	size int64
}

func newSpillFile(path string, h Hooks) *spillFile { return &spillFile{path: path, hooks: h, fd: -1} }

// reserve returns the place of n octets.
func (f *spillFile) reserve(n int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size += n
	return f.size - n
}

// written is how much was written.
func (f *spillFile) written() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size
}

func (f *spillFile) open() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd >= 0 {
		return f.fd, nil
	}
	err := f.hooks.At("spill")
	if err == nil {
		f.fd, err = unnamedFile(f.path)
	}
	if err == nil {
		setDirect(f.fd, true)
	}
	if err != nil {
		return -1, f.failed(err)
	}
	return f.fd, nil
}

// write writes pieces one behind the other and returns how many octets they had.
func (f *spillFile) write(pieces [][]byte, offset int64) (int64, error) {
	fd, err := f.open()
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for again := true; len(pieces) > 0; {
		n, err := pwritev(fd, pieces, offset+total)
		switch {
		case errors.Is(err, unix.EINVAL) && again:
			if again, err = false, setDirect(fd, false); err != nil {
				return total, f.failed(err)
			}
			continue
		case err != nil:
			return total, f.failed(err)
		case n == 0:
			return total, f.failed(io.ErrShortWrite)
		}
		total += int64(n)
		for len(pieces) > 0 && n >= len(pieces[0]) {
			n -= len(pieces[0])
			pieces = pieces[1:]
		}
		if n > 0 {
			pieces[0] = pieces[0][n:]
		}
	}
	return total, nil
}

func (f *spillFile) read(b []byte, offset int64) error {
	for again := true; len(b) > 0; {
		n, err := unix.Pread(f.fd, b, offset)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL) && again:
			if again, err = false, setDirect(f.fd, false); err != nil {
				return f.failed(err)
			}
			continue
		case err != nil:
			return f.failed(err)
		case n == 0:
			return errSpill
		}
		b, offset = b[n:], offset+int64(n)
	}
	return nil
}

// failed says which disk it was.
func (f *spillFile) failed(err error) error {
	return fmt.Errorf("%w in %s: %w", errTemporary, filepath.Dir(f.path), err)
}

func (f *spillFile) close() {
	if f.fd >= 0 {
		unix.Close(f.fd)
		f.fd = -1
	}
}

// unlinkedFile makes a file beside path and takes its name away at once.
func unlinkedFile(path string) (int, error) {
	name := fmt.Sprintf("%s%s%d-spill", path, TempMark, os.Getpid())
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	if err := os.Remove(name); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
