package resp

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// defaultUser is whose password AUTH means with one word.
const defaultUser = "default"

// maxPassword bounds a file with a password, in octets.
const maxPassword = 1 << 10

// users are the passwords. They are safe for concurrent use.
type users struct {
	hashes atomic.Pointer[map[string][sha256.Size]byte]
}

func readUsers(files map[string]string) (*users, error) {
	u := &users{}
	return u, u.read(files)
}

func (u *users) read(files map[string]string) error {
	hashes := map[string][sha256.Size]byte{}
	for name, path := range files {
		password, err := readPassword(path)
		if err != nil {
			return fmt.Errorf("password of %q: %w", name, err)
		}
		hashes[name] = sha256.Sum256(password)
	}
	u.hashes.Store(&hashes)
	return nil
}

// readPassword returns what a file holds, less the line end of its one line.
func readPassword(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxPassword {
		return nil, fmt.Errorf("%s has more than %d octets; want a password in one line", path, maxPassword)
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	switch {
	case len(text) == 0:
		return nil, fmt.Errorf("%s is empty; want a password in one line", path)
	case bytes.ContainsAny(text, "\r\n\x00"):
		return nil, errors.New(path + " has more than one line; want a password in one line")
	}
	return text, nil
}

// none reports whether there are no users.
func (u *users) none() bool { return len(*u.hashes.Load()) == 0 }

// knows reports whether a password is that of a user. It takes the same time for every
// password, and for a user who does not exist.
func (u *users) knows(name, password []byte) bool {
	want, ok := (*u.hashes.Load())[string(name)]
	have := sha256.Sum256(password)
	return subtle.ConstantTimeCompare(want[:], have[:]) == 1 && ok
}
