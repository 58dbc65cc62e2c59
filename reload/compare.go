package reload

import (
	"fmt"
	"os"
	"slices"
	"time"

	"blockd/index"
	"blockd/lists"
)

// The number of entries, with repeated ones, from which on a change of size says something. In
// a smaller list a handful of new lines is a large share.
const (
	ShrinkFrom = 100
	growFrom   = 1000
)

// Compare returns the lists of a new generation that differ too much from those in force, or are older. Err wraps a
// *lists.FileError of class Empty, Shrunk, Grown, BadFormat or Stale. Lists that are new, or are not configured any
// more, are not compared, and neither is what an operator has chosen for a fleet.
func Compare(all []List, old *index.Index, now []index.ListInfo) []Difference {
	odd := compare(all, old.Lists(), now)
	for _, p := range stale(all, old, now, time.Now()) {
		p.err = fmt.Errorf("%w, which was built at %s", p.err, shownTime(old.Built()))
		odd = append(odd, p)
	}
	return differences(unchosen(all, odd))
}

// unchosen returns the problems of lists that nobody has chosen for a fleet.
func unchosen(all []List, odd []problem) []problem {
	byName := listsByName(all)
	return slices.DeleteFunc(odd, func(p problem) bool { return byName[p.list].Signed != nil && byName[p.list].Signed() })
}

// compare is Compare without the age. A long list is more often emptied by accident, such as a
// failed download, than by intent, and more often replaced by another list than made ten times
// as long. So the intent must be stated. Of a short one people take the last lines out themselves:
// that counts as soon as its files rest, since some programs empty a file before they write it.
func compare(all []List, old, now []index.ListInfo) (odd []problem) {
	for _, l := range all {
		for _, c := range l.changed(old, now) {
			e := l.compare(c.was, c.is)
			if e != nil && e.Class == lists.Empty && c.was < ShrinkFrom {
				if e.Err = settle(e.Err, c.files, time.Now()); e.Err == nil {
					e = nil
				}
			}
			if e != nil {
				e.Path = c.path
				odd = append(odd, fileProblem(l.Name, c.path, e))
			}
		}
	}
	return append(odd, turned(old, now)...)
}

// resized is what is compared of a list: all of it, or one owner's file.
type resized struct {
	path    string
	was, is int      // entries
	files   []string // that had some, "" for one that cannot be read now
}

// changed are the parts of a list that are compared, each by itself. Where each file is one owner's, no owner's
// change keeps those of others away; that many of the files have gone at once is judged of the whole.
func (l List) changed(old, now []index.ListInfo) (parts []resized) {
	all, of := resized{path: l.Path}, map[file]int{}
	for _, row := range now {
		if row.Source.List == l.Name {
			of[fileOf(row)] = row.Entries()
			all.is += row.Entries()
		}
	}
	for _, row := range old {
		if row.Source.List != l.Name {
			continue
		}
		is, there := of[fileOf(row)]
		part := resized{path: row.Source.Path, was: row.Entries(), is: is}
		switch {
		case part.was == 0:
		case there:
			part.files = []string{part.path}
		default:
			part.files = []string{""}
		}
		if l.Named && there {
			parts = append(parts, part)
			all.is += part.was - part.is
		}
		all.was += part.was
		all.files = append(all.files, part.files...)
	}
	return append(parts, all)
}

// youngError is about a file without entries, which counts as soon as its writer is surely done.
type youngError struct {
	error
	rests time.Time
}

func (e youngError) Error() string {
	return e.error.Error() + "; its file has just been written, and counts when it rests"
}

// settle returns err, that a short list has no entry any more, where a file of it that had some has gone; a
// youngError where one may still be written; and nil if all rest.
func settle(err error, files []string, clock time.Time) error {
	for _, path := range files {
		info, gone := os.Stat(path)
		if gone != nil {
			return err
		}
		if clock.Sub(info.ModTime()).Abs() < coarse {
			return youngError{err, info.ModTime().Add(coarse)}
		}
	}
	return nil
}

// compare judges the list by its number of entries then and now.
func (l List) compare(was, is int) *lists.FileError {
	refuse := func(c lists.Class, format string, args ...any) *lists.FileError {
		return &lists.FileError{Class: c, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case is < was && l.Signed != nil:
		return nil
	case is == 0 && was > 0:
		if l.AllowEmpty {
			return nil
		}
		return refuse(lists.Empty, "no entry is left of %d", was)
	case was >= ShrinkFrom && float64(is) < l.MaxShrink*float64(was):
		return refuse(lists.Shrunk, "%d entries are left of %d, less than max_shrink = %v of them", is, was, l.MaxShrink)
	case was >= growFrom && l.MaxGrow > 0 && float64(is) > l.MaxGrow*float64(was):
		return refuse(lists.Grown, "%d entries after %d, more than max_grow = %v times as many", is, was, l.MaxGrow)
	}
	return nil
}

// turned finds the files whose guessed format has changed: an exception in one format may be a
// refusal in another. A file without entries has no format.
func turned(old, now []index.ListInfo) (odd []problem) {
	formats := map[file]string{}
	for _, row := range old {
		if row.Entries() > 0 {
			formats[fileOf(row)] = row.Summary.Format
		}
	}
	for _, row := range now {
		was, is := formats[fileOf(row)], row.Summary
		guessed := row.Source.Settings.Format == "" || row.Source.Settings.Format == "auto"
		if guessed && row.Entries() > 0 && was != "" && was != is.Format {
			odd = append(odd, fileProblem(row.Source.List, row.Source.Path, &lists.FileError{Path: row.Source.Path, Class: lists.BadFormat,
				Err: fmt.Errorf("was %s, and looks like %s now; declare its format", was, is.Format)}))
		}
	}
	return odd
}
