// Package subscription adds, changes and removes lists that are fetched from elsewhere, in the text of a configuration or of the file
// that http.lists_file names. A change is made whole or not at all: what the text would mean is judged before the file is replaced.
// People's own comments and lines stay.
package subscription

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"blockd/cmd/blockd/internal/config"
	newlist "blockd/cmd/blockd/internal/setup"
	"blockd/internal/durable"
	"blockd/sources/catalogue"
)

// Most is how many lists may be added to http.lists_file.
const Most = 100

// heading begins a file that was not there. It is also why the file is never empty, which would be a fault.
const heading = "# Lists that were added in the console, over HTTP or by blockd subscribe. blockd changes this file; you may too.\n"

// The errors of a change. Each is wrapped with words for people.
var (
	ErrWhat     = errors.New("no such list can be added")
	ErrRefused  = errors.New("nothing is changed") // because of what the files have now
	ErrUnwanted = errors.New("with the change it would not be good")
)

// Files are those in which lists of a configuration stand. They are for one goroutine.
type Files struct {
	path       string // of the configuration
	lists      config.Config
	own, added *file
}

// file is one of them, as it was read.
type file struct {
	path  string // "": there is none
	text  []byte
	there bool
	mode  fs.FileMode
}

// Place is where a subscription stands.
type Place struct {
	catalogue.Subscription
	InListsFile bool
}

// Open reads the files of c, which is the configuration at path.
func Open(path string, c config.Config) (*Files, error) {
	f := &Files{path: path, lists: c, own: &file{path: path}, added: &file{path: c.HTTP.ListsFile, mode: 0o640}}
	for _, one := range []*file{f.own, f.added} {
		if one.path == "" {
			continue
		}
		text, err := os.ReadFile(one.path)
		if errors.Is(err, fs.ErrNotExist) && one == f.added {
			one.text = []byte(heading)
			continue
		} else if err != nil {
			return nil, err
		}
		one.text, one.there = text, true
	}
	return f, nil
}

// Of is the subscription to a list. The error is that of catalogue.Find, with the file.
func (f *Files) Of(name string) (p Place, ok bool, err error) {
	for _, one := range []*file{f.added, f.own} {
		s, ok, err := catalogue.Find(one.text, name)
		if err != nil {
			return p, false, fmt.Errorf("%s: %w", one.path, err)
		}
		if ok {
			return Place{s, one == f.added}, true, nil
		}
	}
	return p, false, nil
}

// InListsFile is how many lists of the configuration stand in http.lists_file.
func (f *Files) InListsFile() (n int) {
	for _, l := range f.lists.Lists {
		if l.InListsFile() {
			n++
		}
	}
	return n
}

// Change is one that has not been made.
type Change struct {
	List string // its name
	Said string // what there is to say of it
	File string // in which it is made

	path string
	in   *file
	text []byte
}

// Add is the change that adds a list of the catalogue, by its name, or one at an https address, which only watches. It is added to
// http.lists_file where there is one.
func (f *Files) Add(what string, now time.Time) (*Change, error) {
	named, err := catalogue.Named(what)
	if err != nil && !strings.HasPrefix(what, "https://") {
		return nil, fmt.Errorf("%w: want a name of the catalogue, or an https address, have %.80q", ErrWhat, what)
	}
	if err != nil {
		if u, err := url.Parse(what); err == nil && (u.User != nil || u.Fragment != "") {
			return nil, fmt.Errorf("%w: an address with a password or a # is for the owner of the configuration to write there", ErrWhat)
		}
	}
	taken := []string{}
	for _, l := range f.lists.Lists {
		if l.Name == what || l.URL == what || named.Name != "" && l.URL == named.URL {
			at := f.own.path
			if l.InListsFile() {
				at = f.added.path
			}
			return nil, fmt.Errorf("%s has this list already, as %q: %w", at, l.Name, ErrRefused)
		}
		taken = append(taken, l.Name)
	}
	in := f.own
	if f.added.path != "" {
		in = f.added
		if f.InListsFile() >= Most {
			return nil, fmt.Errorf("%s has %d lists, and no more may be added; remove one first: %w", in.path, Most, ErrRefused)
		}
		if err := f.lists.MayAdd(cmp.Or(named.URL, what)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrWhat, err)
		}
	}
	copies, err := filepath.Abs(f.lists.SubscribedFolder())
	if err != nil {
		return nil, err
	}
	text, name, said, err := newlist.AddList(context.Background(), in.text, what, "", copies, taken, now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWhat, err)
	}
	return &Change{name, said, in.path, f.path, in, text}, nil
}

// Enforce is the change that lets a list count.
func (f *Files) Enforce(name string) (*Change, error) { return f.edit(name, catalogue.Enforce) }

// Remove is the change that takes a list away.
func (f *Files) Remove(name string) (*Change, error) { return f.edit(name, catalogue.Unsubscribe) }

func (f *Files) edit(name string, by func([]byte, string) ([]byte, error)) (*Change, error) {
	in := f.own
	if p, _, err := f.Of(name); err != nil {
		return nil, err
	} else if p.InListsFile {
		in = f.added
	}
	text, err := by(in.text, name)
	if err != nil {
		return nil, err
	}
	return &Change{List: name, File: in.path, path: f.path, in: in, text: text}, nil
}

// Make replaces the file, if the configuration has no fault with the change and nobody else has written the file since Open. Just before
// that it calls before, unless it is nil; an error of before leaves the file as it is.
func (c *Change) Make(before func() error) error {
	if err := c.in.isFile(); err != nil {
		return err
	}
	if c.in.there {
		info, err := os.Stat(c.in.path)
		if err != nil {
			return err
		}
		c.in.mode = info.Mode().Perm()
	}
	draft, err := durable.Create(c.in.path, c.in.mode)
	if err != nil {
		return err
	}
	defer draft.Discard()
	if _, err := draft.Write(c.text); err != nil {
		return err
	}
	if c.in.path == c.path { // paths in it are relative to its folder, which is the draft's too
		_, err = config.LoadToServe(draft.Name())
	} else {
		_, err = config.LoadLists(c.path, c.text)
	}
	if err != nil {
		return fmt.Errorf("%s stays as it is: %w:\n%s", c.in.path, ErrUnwanted, strings.ReplaceAll(err.Error(), draft.Name(), c.in.path))
	}
	if err := c.in.still(); err != nil {
		return err
	}
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	return draft.Commit()
}

// TakeBack puts back what the file had before Make.
func (c *Change) TakeBack() error {
	now := file{path: c.in.path, text: c.text, there: true}
	if err := now.still(); err != nil {
		return err
	}
	if !c.in.there {
		if err := os.Remove(c.in.path); err != nil {
			return err
		}
		return durable.SyncFolder(filepath.Dir(c.in.path))
	}
	return durable.WriteFile(c.in.path, c.in.text, c.in.mode)
}

// isFile says why a path is not replaced: it is a link, and what that leads to would stay as it was.
func (f *file) isFile() error {
	info, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !f.there:
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink == 0:
		return nil
	}
	target, err := os.Readlink(f.path)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is a link to %s; name the file itself: %w", f.path, target, ErrRefused)
}

// still says whether the file is as it was read.
func (f *file) still() error {
	text, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !f.there:
		return nil
	case err != nil:
		return err
	case !f.there || !bytes.Equal(text, f.text):
		return fmt.Errorf("somebody has just changed %s; try again: %w", f.path, ErrRefused)
	}
	return nil
}
