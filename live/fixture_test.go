package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
)

// source is a list of a test.
func source(t testing.TB, name, text string) index.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return index.Source{List: name, Path: path, Settings: lists.Settings{Format: "plain"}}
}

// folded is the source of a set's entries, once there is one.
func folded(folder string) index.Source {
	return index.Source{List: ListName, Path: listPath(folder), Settings: lists.Settings{Format: "plain"}, Optional: true}
}

func build(t testing.TB, sources ...index.Source) *index.Index {
	t.Helper()
	d, err := index.Build(t.Context(), filepath.Join(t.TempDir(), "test.bdx"), sources, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(); err != nil {
		t.Fatal(err)
	}
	return d.Index()
}

// covering tells the live entries that cover a sender, the most specific first.
func covering(t testing.TB, set *Set, ix *index.Index, text string) string {
	t.Helper()
	sender, err := addr.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	matches, err := ix.Lookup(nil, sender, now)
	if err != nil {
		t.Fatal(err)
	}
	matches, table := set.Amend(matches, ix, Question{Sender: sender}, now)
	var all []string
	for i := range matches {
		if m := &matches[i]; table[m.Row].Source.List == ListName {
			all = append(all, m.Action.String()+" "+plain(m))
		}
	}
	return strings.Join(all, ", ")
}

// plain is the entry of a match as a plain list has it.
func plain(m *index.Match) string {
	return (&lists.Item{Kind: m.Kind, Key: m.Key, Net: m.Net, Scope: m.Scope}).Plain()
}
