package live

import (
	"strings"
	"testing"
	"time"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
)

// folded is the source of a set's entries, once there is one.
func folded(folder string) index.Source {
	return index.Source{List: ListName, Path: listPath(folder), Settings: lists.Settings{Format: "plain"}, Optional: true}
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
