// Package indexes makes an index of the text of a test's lists.
package indexes

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"blockd/index"
	"blockd/internal/testkit"
)

// Source is a list that holds text: a table of Postfix if the text has actions, a
// configuration of SpamAssassin if it asks for proof, else a plain list.
func Source(t testing.TB, name, text string) index.Source {
	t.Helper()
	s := index.Source{List: name, Path: testkit.File(t, name+".txt", text)}
	switch {
	case strings.Contains(text, "_auth "):
		s.Settings.Format = "spamassassin"
	case action.MatchString(text):
		s.Settings.Format = "postfix"
	default:
		s.Settings.Format = "plain"
	}
	return s
}

var action = regexp.MustCompile(` (REJECT|DEFER|OK|DISCARD|4|5)`)

// Build is the index of the sources, in a folder of its own.
func Build(t testing.TB, sources ...index.Source) *index.Index {
	t.Helper()
	return BuildAt(t, filepath.Join(t.TempDir(), "test.bdx"), sources...)
}

// BuildAt is the index of the sources, in the file at path.
func BuildAt(t testing.TB, path string, sources ...index.Source) *index.Index {
	t.Helper()
	return BuildWith(t, path, index.Options{}, sources...)
}

// BuildWith is BuildAt with options.
func BuildWith(t testing.TB, path string, o index.Options, sources ...index.Source) *index.Index {
	t.Helper()
	draft, err := index.Build(t.Context(), path, sources, o)
	if err == nil {
		err = draft.Publish()
	}
	if err != nil {
		t.Fatal(err)
	}
	return draft.Index()
}
