package reload

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"blockd/index"
	"blockd/lists"
)

// date is when what stands in a file of the list was last known to be the list:
// when its server confirmed it, or else when it was written.
func (l List) date(info os.FileInfo) time.Time {
	if l.Confirmed != nil {
		if at := l.Confirmed(); !at.IsZero() {
			return at
		}
	}
	return info.ModTime()
}

// stale finds the files that are other than those in force and older than their
// list may be. A backup that was put back would replace what is newer, and nobody
// would notice: it loads without a fault. A file that is as it was may get old:
// see age. Lists that are new are not compared.
func stale(all []List, old *index.Index, now []index.ListInfo, clock time.Time) (odd []problem) {
	type file struct{ list, path string }
	was, known := map[file][16]byte{}, map[string]bool{}
	for _, row := range old.Lists() {
		if row.Summary.Verdict != lists.Refused {
			was[file{row.Source.List, row.Source.Path}] = row.Summary.Hash
			known[row.Source.List] = true
		}
	}
	byName := map[string]List{}
	for _, l := range all {
		byName[l.Name] = l
	}
	for _, row := range now {
		l := byName[row.Source.List]
		if l.MaxAge <= 0 || !known[l.Name] || row.Summary.Verdict == lists.Refused ||
			was[file{l.Name, row.Source.Path}] == row.Summary.Hash {
			continue
		}
		info, err := os.Stat(row.Source.Path)
		if err != nil {
			continue // it has gone since: the next look says so
		}
		if at := l.date(info); clock.Sub(at) > l.MaxAge {
			odd = append(odd, fileProblem(l.Name, row.Source.Path, &lists.FileError{Path: row.Source.Path, Class: lists.Stale,
				Err: fmt.Errorf("is of %s, older than max_age = %s, and not what serves", shownTime(at), shownAge(l.MaxAge))}))
		}
	}
	return odd
}

// age notes which lists in force are older than they may be, and tells of each
// once. They serve on: an old list is better than none, and who wrote it may have
// nothing to add.
//
// The date is that of the content that serves. A file that is there and is
// refused does not make the list younger.
func (r *Reloader) age(clock time.Time) {
	serving := r.live.Load()
	if serving == nil {
		return
	}
	now := make(map[content]bool, len(r.seen.contents))
	for _, c := range r.seen.contents {
		c.guard = 0
		now[c] = true
	}
	byName := map[string]List{}
	for _, l := range r.settings.Lists {
		byName[l.Name] = l
	}
	dates, old := map[[2]string]time.Time{}, []string(nil)
	for _, row := range serving.Lists() {
		l, path := byName[row.Source.List], row.Source.Path
		if row.Summary.Verdict == lists.Refused {
			continue
		}
		key := [2]string{row.Source.List, path}
		at, known := r.dates[key]
		if !known {
			at = serving.Built() // it was there then
		}
		if info := r.seen.stamps[path]; info != nil && now[content{list: l.Name, path: path, hash: row.Summary.Hash}] {
			date := l.date(info)
			// What stands there from now on is the next look's. The date comes first: it
			// may be that of a file which came a moment ago.
			if is, _ := os.Stat(path); sameStamp(is, info) {
				at = date
			}
		}
		dates[key] = at
		if l.MaxAge > 0 && clock.Sub(at) > l.MaxAge && !slices.Contains(old, l.Name) {
			old = append(old, l.Name)
			if !slices.Contains(r.status.Stale, l.Name) {
				r.log.Warn("list is old", slog.String("list", l.Name), slog.String("file", path), slog.Time("date", at),
					slog.String("max_age", shownAge(l.MaxAge)), slog.String("hint", "see why nobody writes it any more; until then it serves on"))
			}
		}
	}
	for _, name := range r.status.Stale {
		if !slices.Contains(old, name) {
			r.log.Info("list is fresh again", slog.String("list", name))
		}
	}
	r.dates = dates
	r.mu.Lock()
	r.status.Stale, r.status.Dates = old, dates
	r.mu.Unlock()
}

func shownTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// shownAge gives days where they are whole, as configuration has them.
func shownAge(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}
