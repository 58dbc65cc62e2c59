package reload

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/internal/stamp"
	"blockd/lists"
)

// date returns when the content of a file was last known to be the list: when its server
// confirmed it, or else when it was written.
func (l List) date(info os.FileInfo) time.Time {
	if l.Confirmed != nil {
		if at := l.Confirmed(); !at.IsZero() {
			return at
		}
	}
	return info.ModTime()
}

func (l List) tooOld(at, clock time.Time) bool { return l.MaxAge > 0 && clock.Sub(at) > l.MaxAge }

// stale finds the files that differ from those in force and are older than their list may be:
// a backup that was put back would replace newer content without a fault. A file that has not
// changed may get old, see age. New lists are not compared.
func stale(all []List, old *index.Index, now []index.ListInfo, clock time.Time) (odd []problem) {
	was, known := map[file][16]byte{}, map[string]bool{}
	for _, row := range old.Lists() {
		if row.Summary.Verdict != lists.Refused {
			was[fileOf(row)] = row.Summary.Hash
			known[row.Source.List] = true
		}
	}
	byName := listsByName(all)
	for _, row := range now {
		l := byName[row.Source.List]
		if row.Source.Kept != "" || !known[l.Name] || row.Summary.Verdict == lists.Refused ||
			was[fileOf(row)] == row.Summary.Hash {
			continue
		}
		info, err := os.Stat(row.Source.Path)
		if err != nil {
			continue // it has gone since; the next look says so
		}
		if at := l.date(info); l.tooOld(at, clock) {
			odd = append(odd, fileProblem(l.Name, row.Source.Path, &lists.FileError{Path: row.Source.Path, Class: lists.Stale,
				Err: fmt.Errorf("is of %s, older than max_age = %s, and not what serves", shownTime(at), shownAge(l.MaxAge))}))
		}
	}
	return odd
}

// age notes which lists in force are older than they may be, and logs each once. They serve
// on: an old list is better than none, and its author may have nothing to add.
func (r *Reloader) age(clock time.Time) {
	serving := r.live.Load()
	if serving == nil {
		return
	}
	byName := listsByName(r.settings.Lists)
	dates, old := r.datesOf(serving, byName), []string(nil)
	for _, row := range serving.Lists() {
		l := byName[row.Source.List]
		at, dated := dates[fileOf(row)]
		if !dated || !l.tooOld(at, clock) || slices.Contains(old, l.Name) {
			continue
		}
		old = append(old, l.Name)
		if !slices.Contains(r.status.Stale, l.Name) {
			r.log.Warn("list is old", slog.String("list", l.Name), slog.String("file", row.Source.Path), slog.Time("date", at),
				slog.String("max_age", shownAge(l.MaxAge)), slog.String("hint", "see why nobody writes it any more; until then it serves on"))
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

// datesOf returns the dates of the contents that serve. A new file that is refused does not
// make its list younger.
func (r *Reloader) datesOf(serving *index.Index, byName map[string]List) map[file]time.Time {
	now := make(map[content]bool, len(r.seen.contents))
	for _, c := range r.seen.contents {
		c.guard = 0
		now[c] = true
	}
	dates := map[file]time.Time{}
	for _, row := range serving.Lists() {
		if row.Summary.Verdict == lists.Refused {
			continue
		}
		l, path := byName[row.Source.List], row.Source.Path
		at, known := r.dates[fileOf(row)]
		if pin, ok := r.pins[l.Name]; ok {
			dates[fileOf(row)] = pin.Served
			continue
		}
		if !known {
			at = serving.Built() // it was there then
		}
		if info := r.seen.stamps[path]; info != nil && now[content{list: l.Name, path: path, hash: row.Summary.Hash}] {
			date := l.date(info)
			// The date is taken first: it may be that of a file which has just come, and
			// which the next look reads.
			if is, _ := os.Stat(path); stamp.Same(is, info) {
				at = date
			}
		}
		dates[fileOf(row)] = at
	}
	return dates
}

// fileRemarks returns a line for each file that serves and is older than it says of itself that it may get, or whose
// format was guessed and that has no entry by that. It serves on: to say so is all.
func fileRemarks(table []index.ListInfo, dates map[[2]string]time.Time, clock time.Time) (lines []string) {
	for i := range table {
		row := &table[i]
		if why := row.Summary.Why; row.Summary.Verdict != lists.Refused && strings.HasPrefix(why, string(lists.Empty)+": ") {
			lines = append(lines, fmt.Sprintf("list %s: %s is %s", row.Source.List, row.Source.Path, why))
		}
		at, after := dates[[2]string(fileOf(*row))], row.Summary.About.Expires
		if row.Summary.Verdict != lists.Refused && after > 0 && !at.IsZero() && clock.Sub(at) > after {
			lines = append(lines, fmt.Sprintf("list %s: %s is of %s, and says of itself that it is to be fetched anew after %s", row.Source.List, row.Source.Path, shownTime(at), shownAge(after)))
		}
	}
	return lines
}

func shownTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// shownAge shows whole days as the configuration does.
func shownAge(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}
