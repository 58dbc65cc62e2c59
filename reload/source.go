package reload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"blockd/index"
	"blockd/index/kept"
	"blockd/lists"
	"blockd/mail/addr"
)

// file is one file of a list: its name and the path.
type file = [2]string

func fileOf(row index.ListInfo) file { return file{row.Source.List, row.Source.Path} }

func listsByName(all []List) map[string]List {
	byName := make(map[string]List, len(all))
	for _, l := range all {
		byName[l.Name] = l
	}
	return byName
}

// expand names the files of all lists in configuration order, those of a glob in the order of
// their names. A glob without a file is a missing list, unless the list is optional. A folder
// that cannot be read is a fault, not an empty folder.
func expand(all []List) (sources []index.Source, faults []problem) {
	for _, l := range all {
		paths, known := []string{l.Path}, false
		if l.Files != nil {
			paths, known = l.Files()
		}
		if !known && l.isGlob() {
			var err error
			if paths, err = glob(l.Path); err == nil && len(paths) == 0 && !l.Optional {
				err = &lists.FileError{Path: l.Path, Class: lists.Missing, Err: errors.New("no file matches")}
			}
			if err != nil {
				faults = append(faults, fileProblem(l.Name, l.Path, err))
			}
		}
		for _, path := range paths {
			sources = append(sources, l.source(path))
		}
	}
	return sources, faults
}

// source is a file of the list. One that is Named has an owner, or is refused when it is read.
func (l List) source(path string) index.Source {
	s := index.Source{List: l.Name, Path: path, Settings: l.Settings, Mode: l.Mode, Optional: l.Optional, Exceptions: l.Exceptions}
	if l.Named {
		s.Settings.Owner, _ = addr.ParseOwner(filepath.Base(path))
	}
	return s
}

// Sources names the files of all lists as a Reloader would read them now. The error is about
// globs without a file whose list is not optional, and folders that cannot be read.
func Sources(all []List) ([]index.Source, error) {
	sources, faults := expand(all)
	return sources, errors.Join(errorsOf(faults)...)
}

// Adoptable says why a list that was rolled back cannot follow its files again: they are not there, or cannot be
// read. What is in them is judged when they are loaded.
func Adoptable(ctx context.Context, l List) error {
	sources, err := Sources([]List{l})
	for _, s := range sources {
		if _, bad := lists.HashFile(ctx, s.Path); bad != nil && err == nil && !l.Named && !l.Optional {
			err = bad
		}
	}
	if err != nil {
		return &kept.Refused{Text: fmt.Sprintf("list %q stays as it is, for there is nothing to adopt: %v", l.Name, err)}
	}
	return nil
}

// PinnedSources are Sources with what pinned lists are held to in the place of their files.
func PinnedSources(all []List, pins []kept.Pin, store *kept.Store) ([]index.Source, error) {
	sources, faults := pinnedSources(all, pins, store)
	return sources, errors.Join(errorsOf(faults)...)
}

func pinnedSources(all []List, pins []kept.Pin, store *kept.Store) (sources []index.Source, faults []problem) {
	for _, l := range all {
		i := slices.IndexFunc(pins, func(p kept.Pin) bool { return p.List == l.Name })
		if i < 0 {
			some, bad := expand([]List{l})
			sources, faults = append(sources, some...), append(faults, bad...)
			continue
		}
		for _, f := range pins[i].Content {
			sources = append(sources, l.keptSource(f, store))
		}
	}
	return sources, faults
}

// keptSource is a file of the list as it was kept.
func (l List) keptSource(f kept.File, store *kept.Store) index.Source {
	s := l.source(string(f.Path))
	s.Kept = store.Whole(f)
	return s
}

// isGlob reports whether the list's path is a pattern: it has a sign of one, and no file has
// that name.
func (l List) isGlob() bool {
	if !strings.ContainsAny(l.Path, `*?[`) {
		return false
	}
	_, err := os.Lstat(l.Path)
	return err != nil
}

// glob is filepath.Glob with two differences. An error ends it: Glob takes a folder that it may
// not read for an empty one, and entries would vanish. And "*" does not match a leading dot, as
// in a shell: editors and Kubernetes give such names to their working files.
func glob(pattern string) ([]string, error) {
	if _, err := filepath.Match(pattern, ""); err != nil {
		return nil, &lists.FileError{Path: pattern, Class: lists.Missing, Err: err}
	}
	folder, name := filepath.Split(pattern)
	folders, many := []string{folder}, strings.ContainsAny(folder, `*?[`)
	if many {
		var err error
		if folders, err = glob(filepath.Clean(folder)); err != nil {
			return nil, err
		}
	}
	var paths []string
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Clean(folder))
		switch {
		case errors.Is(err, fs.ErrNotExist), many && !isFolder(folder):
			continue
		case err != nil:
			return nil, refusedFolder(folder, err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(name, ".") {
				continue
			}
			if ok, _ := filepath.Match(name, e.Name()); ok {
				paths = append(paths, filepath.Join(folder, e.Name()))
			}
		}
	}
	return paths, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func refusedFolder(path string, err error) error {
	class := lists.NotAFile
	if errors.Is(err, fs.ErrPermission) {
		class = lists.Permission
	}
	return &lists.FileError{Path: path, Class: class, Err: err}
}
