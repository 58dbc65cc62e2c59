package lists

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	maxMembers = 32   // of a path
	maxNoted   = 5000 // strings in other places that are looked at for a hint
	maxPaths   = 100  // of those places
	maxPath    = 200  // octets of such a path
)

// jsonStep is a member on the way to the entries. Arrays on the way are gone through whether the path shows them or
// not.
type jsonStep struct {
	name string // "*" is every member
	rest string // of the path, from here on: a member may have a dot in its name
}

// match returns the steps behind a member of this name.
func (s jsonStep) match(path []jsonStep, name string) (rest []jsonStep, ok bool) {
	switch name {
	case s.name:
		return path[1:], true
	case s.rest:
		return nil, true
	}
	return path[1:], s.name == "*"
}

// parsePath reads "data[].ip": members with dots between them, each perhaps with "[]" behind it, which stands for the
// elements of an array; "[]" alone is the array that is the whole text.
func parsePath(text string) (path []jsonStep, err error) {
	for rest := text; rest != ""; {
		name, more, dot := strings.Cut(rest, ".")
		bare := name
		for strings.HasSuffix(bare, "[]") {
			bare = strings.TrimSuffix(bare, "[]")
		}
		switch {
		case bare == "" && (rest != text || name == ""), dot && more == "":
			return nil, fmt.Errorf("nothing between two dots of the path; one is written %s", "data[].ip")
		case len(path) == maxMembers:
			return nil, fmt.Errorf("a path has at most %d members", maxMembers)
		case bare != "":
			path = append(path, jsonStep{bare, rest})
		}
		rest = more
	}
	return path, nil
}

// checkPath judges the argument of the format.
func checkPath(arg string) error {
	_, err := parsePath(arg)
	return err
}

// memberPath is the path of a member of what is at another path.
func memberPath(where, name string) string {
	switch {
	case len(where)+len(name) > maxPath || name == "" || name == "*" || strings.ContainsAny(name, ".[]"):
		return "." // which nobody can write
	case where == "":
		return name
	}
	return where + "." + name
}

// skipFrom reads over the value that begins with t, and notes where in it entries are.
func (f *jsonFile) skipFrom(t json.Token, where string) error {
	if f.seen >= maxNoted || where[:min(len(where), 1)] == "." || len(where) > maxPath {
		if t == json.Delim('[') || t == json.Delim('{') {
			return f.skipRest()
		}
		return nil
	}
	switch t {
	case json.Delim('['):
		for {
			t, err := f.token()
			if err != nil || t == json.Delim(']') {
				return err
			}
			if err := f.skipFrom(t, where+"[]"); err != nil {
				return err
			}
		}
	case json.Delim('{'):
		return f.members(func(name string, t json.Token) error { return f.skipFrom(t, memberPath(where, name)) })
	}
	f.note(t, where)
	return nil
}

// note notes that a string at a path reads as an entry.
func (f *jsonFile) note(t json.Token, where string) {
	text, ok := t.(string)
	if f.seen++; !ok || f.seen > maxNoted || where == "." || len(f.places) == maxPaths && f.places[where] == 0 || !readsAsEntry(trim(text)) {
		return
	}
	f.places[where]++
}

// hint names the paths that lead to most entries, three at the most, behind before; "" if there are none.
func (f *jsonFile) hint(before string) string {
	var paths []string
	for path := range f.places {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(f.places[b]-f.places[a], cmp.Compare(a, b)) })
	if len(paths) == 0 {
		return ""
	}
	return cleanText(before + "json:" + strings.Join(paths[:min(len(paths), 3)], " or json:"))
}
