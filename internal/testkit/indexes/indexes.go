// Package indexes makes an index of the text of a test's lists.
package indexes

import (
	"path/filepath"
	"testing"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
)

// Source is a list in the plain format that holds text.
func Source(t testing.TB, name, text string) index.Source {
	t.Helper()
	return index.Source{List: name, Path: testkit.File(t, name+".txt", text), Settings: lists.Settings{Format: "plain"}}
}

// Build is the index of the sources, in a folder of its own.
func Build(t testing.TB, sources ...index.Source) *index.Index {
	t.Helper()
	return BuildAt(t, filepath.Join(t.TempDir(), "test.bdx"), sources...)
}

// BuildAt is the index of the sources, in the file at path.
func BuildAt(t testing.TB, path string, sources ...index.Source) *index.Index {
	t.Helper()
	draft, err := index.Build(t.Context(), path, sources, index.Options{})
	if err == nil {
		err = draft.Publish()
	}
	if err != nil {
		t.Fatal(err)
	}
	return draft.Index()
}
