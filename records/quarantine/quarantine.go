// Package quarantine is the Maildir of smtp.quarantine as those see it who look through it: what was set aside, what it
// says, and what becomes of it. Package mailbox writes it.
//
// All of it may be used by several processes at once, also beside a mail reader that has the folder open. Who releases or
// removes a message locks its file meanwhile.
package quarantine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"blockd/internal/durable"
)

// Folder is the path of the Maildir.
type Folder string

// Errors about one message.
var (
	ErrNotThere  = errors.New("no such message in quarantine")
	ErrAmbiguous = errors.New("more than one message in quarantine begins so")
	ErrBusy      = errors.New("somebody is releasing or removing this message")
	ErrForeign   = errors.New("blockd did not set this file aside: for whom it is meant is not known")
	ErrUnsure    = errors.New("its last release was cut off when the next server may have had it")
)

// file is a message's place: its ID is the name up to the flags that readers add (maildir(5)).
type file struct {
	id, folder, name string
}

func (f Folder) path(of file) string { return filepath.Join(string(f), of.folder, of.name) }

// files are all messages, the newest first.
func (f Folder) files() ([]file, error) {
	var all []file
	for _, folder := range [...]string{"new", "cur"} {
		entries, err := os.ReadDir(filepath.Join(string(f), folder))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not made before the first start
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
				continue
			}
			id, _, _ := strings.Cut(e.Name(), ":")
			all = append(all, file{id, folder, e.Name()})
		}
	}
	slices.SortFunc(all, func(a, b file) int { return later(b.id, a.id) })
	// A reader that moved one from new to cur between the two looks may have shown it twice.
	return slices.CompactFunc(all, func(a, b file) bool { return a.id == b.id }), nil
}

// later orders IDs by the time in them: "SECONDS.M000123P…", and by the text where that is the same or none.
func later(a, b string) int {
	return cmp.Or(cmp.Compare(seconds(a), seconds(b)), cmp.Compare(a, b))
}

func seconds(id string) int64 {
	text, _, _ := strings.Cut(id, ".")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// find is the one message whose ID is id, or begins with it.
func (f Folder) find(id string) (file, error) {
	all, err := f.files()
	if err != nil {
		return file{}, err
	}
	found := file{}
	for _, one := range all {
		switch {
		case one.id == id:
			return one, nil
		case id == "" || !strings.HasPrefix(one.id, id):
		case found.id != "":
			return file{}, fmt.Errorf("%w: %q", ErrAmbiguous, id)
		default:
			found = one
		}
	}
	if found.id == "" {
		return file{}, fmt.Errorf("%w: %q", ErrNotThere, id)
	}
	return found, nil
}

// held is a message that nobody else releases or removes until it is closed.
type held struct {
	*durable.LockFile
	file
}

// hold opens and locks a message. ErrBusy: another has it.
func (f Folder) hold(id string) (held, error) {
	one, err := f.find(id)
	if err != nil {
		return held{}, err
	}
	opened, err := os.Open(f.path(one))
	if errors.Is(err, fs.ErrNotExist) { // gone, or a reader has moved it this moment
		err = fmt.Errorf("%w: %q", ErrNotThere, id)
	}
	if err != nil {
		return held{}, err
	}
	locked, err := durable.Hold(opened, fmt.Errorf("%w: %s", ErrBusy, one.id))
	if err != nil {
		opened.Close()
		return held{}, err
	}
	// Who had it before may have removed it, or put another file with fewer recipients in its place.
	h := held{locked, one}
	if now, err := h.where(f); err != nil || now == "" {
		h.Close()
		return held{}, cmp.Or(err, fmt.Errorf("%w: %q", ErrNotThere, id))
	}
	return h, nil
}

// where is the path that the held file has now, "" if it is not there any more.
func (h held) where(f Folder) (string, error) {
	all, err := f.files()
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(o file) bool { return o.id == h.id })
	if i < 0 {
		return "", nil
	}
	path := f.path(all[i])
	there, err := os.Lstat(path)
	if err != nil {
		return "", nil
	}
	own, err := h.Stat()
	if err != nil || !os.SameFile(own, there) {
		return "", err
	}
	return path, nil
}

// remove removes the held file, wherever a reader has moved it.
func (h held) remove(f Folder) error {
	for range 3 { // a reader may move it between the two steps
		path, err := h.where(f)
		if err != nil || path == "" {
			return err
		}
		if err = os.Remove(path); err == nil {
			return durable.SyncFolder(filepath.Dir(path))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%w: %s", ErrBusy, h.id)
}

// Removed is what Purge and Remove have removed.
type Removed struct {
	Messages int   `json:"messages"`
	Octets   int64 `json:"octets"`
	Busy     int   `json:"busy"` // left, because somebody was releasing them
}

// Purge removes all messages that were set aside before a time. It ends early with ctx, and with the first file that cannot
// be removed.
func (f Folder) Purge(ctx context.Context, before time.Time) (done Removed, err error) {
	all, err := f.files()
	if err != nil {
		return done, err
	}
	for _, one := range all {
		at, err := f.kept(one)
		switch {
		case ctx.Err() != nil:
			return done, ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return done, err
		case !at.Before(before):
			continue
		}
		if err := f.removeOne(one.id, &done); err != nil && !errors.Is(err, ErrNotThere) {
			return done, err
		}
	}
	return done, f.forgetStale()
}

// Remove removes one message.
func (f Folder) Remove(id string) (done Removed, err error) {
	err = f.removeOne(id, &done)
	if err == nil && done.Busy > 0 {
		err = fmt.Errorf("%w: %s", ErrBusy, id)
	}
	return done, err
}

func (f Folder) removeOne(id string, done *Removed) error {
	h, err := f.hold(id)
	if errors.Is(err, ErrBusy) {
		done.Busy++
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	info, err := h.Stat()
	if err == nil {
		err = h.remove(f)
	}
	if err != nil {
		return err
	}
	done.Messages++
	done.Octets += info.Size()
	return f.forget(h.id)
}

// kept is when a message was set aside: its name says it, or else the file's time.
func (f Folder) kept(one file) (time.Time, error) {
	if s := seconds(one.id); s > 0 {
		return time.Unix(s, 0), nil
	}
	info, err := os.Lstat(f.path(one))
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}
