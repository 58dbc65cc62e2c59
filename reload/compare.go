package reload

import (
	"fmt"
	"time"

	"blockd/index"
	"blockd/lists"
)

// The number of entries, with repeated ones, from which on a change of size says something. In
// a smaller list a handful of new lines is a large share.
const (
	shrinkFrom = 100
	growFrom   = 1000
)

// Compare returns the lists of a new generation that differ too much from those in force, or
// are older. Err wraps a *lists.FileError of class Empty, Shrunk, Grown, BadFormat or Stale.
// Lists that are new, or are not configured any more, are not compared.
func Compare(all []List, old *index.Index, now []index.ListInfo) []Difference {
	odd := compare(all, old.Lists(), now)
	for _, p := range stale(all, old, now, time.Now()) {
		p.err = fmt.Errorf("%w, which was built at %s", p.err, shownTime(old.Built()))
		odd = append(odd, p)
	}
	return differences(odd)
}

// compare is Compare without the age. A list is more often emptied by accident, such as a
// failed download, than by intent, and more often replaced by another list than made ten times
// as long. So the intent must be stated.
func compare(all []List, old, now []index.ListInfo) (odd []problem) {
	was, is := entries(old), entries(now)
	for _, l := range all {
		if e := l.compare(was[l.Name], is[l.Name]); e != nil {
			e.Path = l.Path
			odd = append(odd, fileProblem(l.Name, l.Path, e))
		}
	}
	return append(odd, turned(old, now)...)
}

// compare judges the list by its number of entries then and now.
func (l List) compare(was, is int) *lists.FileError {
	refuse := func(c lists.Class, format string, args ...any) *lists.FileError {
		return &lists.FileError{Class: c, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case is == 0 && was > 0:
		if l.AllowEmpty {
			return nil
		}
		return refuse(lists.Empty, "no entry is left of %d", was)
	case was >= shrinkFrom && float64(is) < l.MaxShrink*float64(was):
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
