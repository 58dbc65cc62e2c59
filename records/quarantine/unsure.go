package quarantine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"blockd/internal/durable"
)

// A release is noted on the disk before the next server gets the message's end, and the note goes when the answer has come.
// After a kill, or a connection that broke between the two, the note is left: nobody knows whether the message was taken
// (RFC 1047), and it is not sent a second time unless somebody says so.

const (
	notes   = "release" // the folder of the notes beside those of the Maildir
	maxNote = 4 << 10   // bytes of one
)

// note is when a release came to its end.
type note struct {
	At time.Time `json:"at"`
}

func (f Folder) notePath(id string) string { return filepath.Join(string(f), notes, id) }

// unsure is when a release of the message was cut off; zero: none was.
func (f Folder) unsure(id string) (time.Time, error) {
	var n note
	switch err := durable.Load(f.notePath(id), maxNote, &n); {
	case errors.Is(err, fs.ErrNotExist):
		return time.Time{}, nil
	case err == nil && !n.At.IsZero():
		return n.At, nil
	case err == nil || errors.Is(err, durable.ErrForeign):
		return time.Unix(1, 0), nil // whatever it says, it is there
	default:
		return time.Time{}, err
	}
}

func (f Folder) remember(id string, at time.Time) error {
	if err := durable.MakeFolder(filepath.Join(string(f), notes)); err != nil {
		return err
	}
	return durable.Save(f.notePath(id), note{at.UTC()}, 0o600)
}

func (f Folder) forget(id string) error {
	err := os.Remove(f.notePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// forgetStale removes the notes of messages that somebody else has removed.
func (f Folder) forgetStale() error {
	entries, err := os.ReadDir(filepath.Join(string(f), notes))
	if err != nil || len(entries) == 0 {
		return nil // none
	}
	all, err := f.files()
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, one := range all {
		there[one.id] = true
	}
	for _, e := range entries {
		if !there[e.Name()] && e.Name()[0] != '.' {
			err = errors.Join(err, f.forget(e.Name()))
		}
	}
	return err
}
