package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	File string // "" while the file is not known
	Line int    // 0 while it is not known
	// Variable is that of the environment which has set the key, or tried to; "" for what stands in the file.
	Variable string
	Key      string // "smtp.reject_at", "list[2].path"; "" for the file as a whole
	Text     string // for people, one line
}

func (f Fault) Error() string {
	var where string
	if f.File != "" {
		where = f.File + ": "
		if f.Line > 0 {
			where = f.File + ":" + strconv.Itoa(f.Line) + ": "
		}
	}
	if f.Variable != "" {
		where = f.Variable + ": "
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

// origins says where keys were set.
type origins struct {
	lines positions // nil: the file is not TOML
	set   variables
	added listsOrigin
}

// locate gives each fault its file and, where it has none, its line or its variable.
func (fs Faults) locate(file string, from origins) {
	for i := range fs {
		if fs[i].File != "" {
			continue // of http.lists_file
		}
		if key, ok := from.added.of(fs[i].Key); ok {
			fs[i].File, fs[i].Line = from.added.file, from.added.lines.of(key)
			continue
		}
		fs[i].File = file
		if fs[i].Variable == "" {
			fs[i].Variable = from.set.of(fs[i].Key)
		}
		if fs[i].Variable == "" && fs[i].Line == 0 {
			fs[i].Line = from.lines.of(fs[i].Key)
		}
	}
}
