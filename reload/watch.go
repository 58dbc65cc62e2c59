package reload

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// watch tells that something happened in a folder of the lists. It watches folders and not
// files: most programs replace a file by rename, and a watch would stay with the old one. It
// does not tell what happened: look finds out for a stat a file, and the name in an event says
// little of a symlink's target.
type watch struct {
	changed chan struct{}     // holds one; nil: no events
	events  *fsnotify.Watcher // nil: the system gives none
	log     *slog.Logger
	told    map[string]bool // folders whose fault was logged
	done    chan struct{}
}

func newWatch(log *slog.Logger) *watch {
	w := &watch{log: log, told: map[string]bool{}, done: make(chan struct{})}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("no file events: list changes are found by the poll alone", "error", err)
		close(w.done)
		return w
	}
	w.events, w.changed = events, make(chan struct{}, 1)
	go w.forward()
	return w
}

func (w *watch) close() {
	if w.events != nil {
		w.events.Close()
	}
	<-w.done
}

// forward drains the events until the watcher is closed.
func (w *watch) forward() {
	defer close(w.done)
	for {
		select {
		case _, ok := <-w.events.Events:
			if !ok {
				return
			}
		case err, ok := <-w.events.Errors:
			if !ok {
				return
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) { // too many events are an event too
				w.log.Warn("file events", "error", err)
			}
		}
		w.tell()
	}
}

func (w *watch) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// follow watches the folders where the lists are now, and no others. Call it often: a folder
// that was removed and made again has lost its watch.
func (w *watch) follow(all []List) {
	if w.events == nil {
		return
	}
	var want map[string]bool
	for gone, tries := true, 0; gone && tries < maxFollows; tries++ {
		want = map[string]bool{}
		for _, l := range all {
			for _, folder := range folders(l) {
				want[folder] = true
			}
		}
		gone = w.add(want)
	}
	for _, folder := range w.events.WatchList() {
		if !want[folder] {
			w.events.Remove(folder) // an error says that it has gone already
		}
	}
}

// maxFollows bounds how often follow begins anew because a folder has vanished.
const maxFollows = 10

// add watches all folders of want. gone: one of them has vanished, and the folder above it must
// be watched before another watch is given up.
func (w *watch) add(want map[string]bool) (gone bool) {
	watched := w.events.WatchList()
	for folder := range want {
		err := w.events.Add(folder)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			gone = true
		case err != nil && !w.told[folder]:
			w.log.Warn("no file events from a folder: its lists are found by the poll", "folder", folder, "error", err)
			w.told[folder] = true
		case err == nil:
			delete(w.told, folder)
			if !slices.Contains(watched, folder) && slices.Contains(w.events.WatchList(), folder) {
				w.tell() // of what happened there before
			}
		}
	}
	return gone
}

// folders returns the real paths of the folders in which an event may mean that the list has
// changed: its own, those of a glob's matches, and every folder with a symlink on the way to a
// file (Kubernetes changes a ConfigMap by renaming one symlink two steps away from the files).
// Of a missing folder it is the nearest one above.
func folders(l List) []string {
	paths := []string{l.Path}
	if l.isGlob() {
		if matches, err := glob(l.Path); err == nil {
			paths = append(paths, matches...)
		}
		folder := filepath.Dir(l.Path)
		for strings.ContainsAny(folder, `*?[`) { // a new folder may match
			folder = filepath.Dir(folder)
			paths = append(paths, filepath.Join(folder, "*"))
		}
	}
	found := map[string]bool{}
	for _, path := range paths {
		if path, err := filepath.Abs(path); err == nil {
			links := maxLinks
			addFolders(found, path, &links)
		}
	}
	var all []string
	for folder := range found {
		real, err := filepath.EvalSymlinks(folder)
		for err != nil && folder != filepath.Dir(folder) { // missing: an event above tells of its return
			folder = filepath.Dir(folder)
			real, err = filepath.EvalSymlinks(folder)
		}
		if err == nil {
			all = append(all, real)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// maxLinks is how many symlinks Linux follows on one path (path_resolution(7)).
const maxLinks = 40

// addFolders adds the folder of the absolute path, and of every symlink on it and on its target,
// as long as there are links left.
func addFolders(found map[string]bool, path string, links *int) {
	found[filepath.Dir(path)] = true
	for at := path; at != filepath.Dir(at) && *links > 0; at = filepath.Dir(at) {
		target, err := os.Readlink(at)
		if err != nil {
			continue
		}
		*links--
		found[filepath.Dir(at)] = true
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(at), target)
		}
		addFolders(found, target+strings.TrimPrefix(path, at), links)
	}
}
