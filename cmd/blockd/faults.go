package main

import (
	"fmt"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	File string // "" while the file is not known
	Line int    // 0 while it is not known
	Key  string // "smtp.reject_at", "list[2].path"; "" for the file as a whole
	Text string // for people, one line
}

func (f Fault) Error() string {
	var where string
	if f.File != "" {
		where = f.File + ": "
		if f.Line > 0 {
			where = f.File + ":" + strconv.Itoa(f.Line) + ": "
		}
	}
	if f.Key == "" {
		return where + f.Text
	}
	return where + shownKey(f.Key) + ": " + f.Text
}

// shownKey drops the numbers of a [[list]] and of what stands in an array: the
// line says which one is meant, and people do not count tables.
func shownKey(key string) string {
	for {
		before, rest, numbered := strings.Cut(key, "[")
		_, after, ended := strings.Cut(rest, "]")
		if !numbered || !ended {
			return key
		}
		key = before + after
	}
}

// Faults is every fault of one file, in the order of its lines: one edit should
// cure them all.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

func (fs *Faults) add(key, format string, args ...any) {
	*fs = append(*fs, Fault{Key: key, Text: fmt.Sprintf(format, args...)})
}

// locate gives each fault its file and, where it has none, its line.
func (fs Faults) locate(file string, line func(key string) int) {
	for i := range fs {
		fs[i].File = file
		if fs[i].Line == 0 {
			fs[i].Line = line(fs[i].Key)
		}
	}
}

// nearest returns the candidate that have most likely was meant to be, "" if
// none is near: two letters apart, or one for a word of up to four.
func nearest(have string, candidates []string) string {
	best, least := "", 3
	if len(have) <= 4 {
		least = 2
	}
	for _, c := range candidates {
		if d := distance(have, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance counts the letters to insert, drop, change or swap with their
// neighbour between a and b (optimal string alignment). Keys are short; texts
// over 64 octets are never near.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	var before, above [65]int
	var row [65]int
	for j := range len(b) + 1 {
		above[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(above[j]+change, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
