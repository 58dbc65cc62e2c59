package setup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"blockd/internal/durable"
)

// ErrNothing is Undo's answer where Install has done nothing that is left.
var ErrNothing = errors.New("blockd init has made nothing here that could be taken back")

// ExistsError is a configuration that somebody has written.
type ExistsError struct{ File string }

func (e ExistsError) Error() string {
	return e.File + " is there already; --force puts the new one in its place and keeps it as " + e.File + before
}

// What stands beside a configuration that Install has made.
const (
	before  = ".before-init" // the one that was there
	noted   = ".init"        // what Install has done
	maxNote = 64 << 10       // bytes of it
)

// folderMode lets the daemon's user read what root has made.
const folderMode = 0o755

// record is what Install has done, for Undo.
type record struct {
	Config   string `json:"config"`         // hex SHA-256 of the text that it has written
	Replaced bool   `json:"replaced"`       // the text before it is kept
	List     string `json:"list,omitempty"` // hex SHA-256 of the list of the administrator's own that it has made
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

// MayInstall is nil if Install would replace what is there.
func MayInstall(file string, packaged []byte, force bool) error {
	_, _, err := standing(file, packaged, force)
	return err
}

// standing reads the configuration that is there, nil for none, and what was noted of it.
func standing(file string, packaged []byte, force bool) (old []byte, r record, err error) {
	old, err = os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, r, err
	}
	if r, err = readRecord(file); err != nil {
		return nil, r, err
	}
	if old != nil && !force && r.Config != sum(old) && !bytes.Equal(old, packaged) {
		return nil, r, ExistsError{file}
	}
	return old, r, nil
}

// Install puts the text of a configuration and an empty list of the administrator's own in
// their places. It replaces no configuration but its own, unchanged, and the one that packages
// bring, unless force is set. check sees the whole file at another name in its folder before it counts.
// One process at a time.
func Install(file string, text, packaged, senders []byte, force bool, check func(draft string) error) error {
	old, r, err := standing(file, packaged, force)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), folderMode); err != nil {
		return err
	}
	own := filepath.Join(filepath.Dir(file), OwnListPath)
	if _, err := os.Lstat(own); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(own), folderMode); err != nil {
			return err
		}
		if err := durable.WriteFile(own, senders, 0o644); err != nil {
			return err
		}
		r.List = sum(senders)
	} else if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm() // it may hold secrets
	}
	draft, err := durable.Create(file, mode)
	if err != nil {
		return err
	}
	defer draft.Discard()
	if _, err := draft.Write(text); err != nil {
		return err
	}
	if err := check(draft.Name()); err != nil {
		return err
	}
	if old != nil && r.Config != sum(old) {
		if err := durable.WriteFile(file+before, old, mode); err != nil {
			return err
		}
		r.Replaced = true
	}
	r.Config = sum(text)
	// The note first: after a crash in between, Undo finds a file that is not the noted one and leaves it alone.
	if err := durable.Save(file+noted, r, 0o644); err != nil {
		return err
	}
	return draft.Commit()
}

func readRecord(file string) (r record, err error) {
	if err := durable.LoadIfThere(file+noted, maxNote, &r); err != nil {
		return r, fmt.Errorf("%w; remove it, and nothing is known of an earlier blockd init", err)
	}
	return r, nil
}

// Undo takes back what Install has done, and returns a line for each thing. What was changed since stays.
func Undo(file string) (done []string, err error) {
	r, err := readRecord(file)
	if err != nil {
		return nil, err
	}
	if r.Config == "" {
		return nil, ErrNothing
	}
	now, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	changed := err == nil && sum(now) != r.Config
	switch {
	case changed && r.Replaced:
		return nil, fmt.Errorf("%s was changed since, and stays; the one before it is %s%s", file, file, before)
	case changed:
		return nil, fmt.Errorf("%s was changed since, and stays; remove it yourself if it is not wanted", file)
	case r.Replaced:
		if err := os.Rename(file+before, file); err != nil {
			return nil, err
		}
		done = append(done, file+" is as it was before")
	default:
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		done = append(done, "removed: "+file)
	}
	own := filepath.Join(filepath.Dir(file), OwnListPath)
	if text, err := os.ReadFile(own); r.List != "" && err == nil {
		if sum(text) == r.List {
			if err := os.Remove(own); err != nil {
				return done, err
			}
			done = append(done, "removed: "+own)
			_ = os.Remove(filepath.Dir(own)) // if it is empty
		} else {
			done = append(done, own+" stays: it has entries of yours")
		}
	}
	if err := os.Remove(file + noted); err != nil {
		return done, err
	}
	return done, durable.SyncFolder(filepath.Dir(file))
}
