// Package secret keeps the keys of keyed hashes: each is a file of hexadecimal digits, made once and read from then on, so
// that hashes are the same after a restart and, where the file is copied, on another machine.
package secret

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"blockd/internal/durable"
)

// Open reads the key of so many octets at path, or makes it. Processes that make one at the same time get the same.
func Open(path string, size int) ([]byte, error) {
	key, err := Read(path, size)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	key = make([]byte, size)
	rand.Read(key) // never fails, see crypto/rand
	// A link takes no name that is there: the first one wins, and a file is there whole or not at all.
	folder := filepath.Dir(path)
	draft, err := os.CreateTemp(folder, filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(draft.Name())
	_, err = draft.WriteString(hex.EncodeToString(key) + "\n")
	if err := errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(draft.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := durable.SyncFolder(folder); err != nil {
		return nil, err
	}
	return Read(path, size)
}

// Read reads the key of so many octets at path. The error of a missing file is fs.ErrNotExist.
func Read(path string, size int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(2*size)+64)) // of a key, and blanks around it
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != size {
		return nil, fmt.Errorf("%s: want a key of %d hexadecimal digits; remove it, and a new one is made", path, 2*size)
	}
	return key, nil
}
