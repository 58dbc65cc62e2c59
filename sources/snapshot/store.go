package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"blockd/internal/durable"
)

// ErrMissing says that a store has no such file.
var ErrMissing = errors.New("no such file in the store")

// Store is where a node finds files. It may be used from several goroutines at once. What it gives need not be true.
type Store interface {
	// Get reads a file from an octet on; a store that cannot begin there gives an error. The reader gives an error if octets stop to come.
	Get(ctx context.Context, name string, from int64) (io.ReadCloser, error)
	String() string // where it is, without secrets
}

// Target is a store that can be written to.
type Target interface {
	Store
	// Put writes a file of so many octets, whole or not at all. changes: another one may come in its place.
	Put(ctx context.Context, name string, content io.ReadSeeker, size int64, changes bool) error
	// Delete removes a file; one that is not there is no error.
	Delete(ctx context.Context, name string) error
}

// Folder is a store in a folder, such as that of a web server.
type Folder string

func (f Folder) String() string { return "file://" + string(f) }

func (f Folder) path(name string) string { return filepath.Join(string(f), filepath.FromSlash(name)) }

// Get implements Store.
func (f Folder) Get(_ context.Context, name string, from int64) (io.ReadCloser, error) {
	file, err := os.Open(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", name, ErrMissing)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a file", name)
	}
	if err == nil {
		_, err = file.Seek(from, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// drafts is the folder of files that are being written. durable.Create would look at each file of a folder with thousands of objects.
const drafts = ".drafts"

// Put implements Target. A web server of another user may read what it writes.
func (f Folder) Put(_ context.Context, name string, content io.ReadSeeker, size int64, changes bool) error {
	path := f.path(name)
	if info, err := os.Stat(path); err == nil && !changes && info.Size() == size && strings.HasPrefix(name, objectName("")) {
		return nil // its name says what is in it
	}
	for _, folder := range []string{filepath.Dir(path), f.path(drafts)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	draft, err := os.CreateTemp(f.path(drafts), "")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name())
	defer draft.Close()
	if _, err := io.Copy(draft, content); err != nil {
		return err
	}
	if err := draft.Chmod(0o644); err != nil {
		return err
	}
	return durable.Rename(draft, path)
}

// Delete implements Target.
func (f Folder) Delete(_ context.Context, name string) error {
	if err := os.Remove(f.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
