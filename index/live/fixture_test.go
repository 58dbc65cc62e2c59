package live

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

// folded is the source of a set's entries, once there is one.
func folded(folder string) index.Source {
	return index.Source{List: ListName, Path: listPath(folder), Settings: lists.Settings{Format: "plain"}, Optional: true}
}

// covering tells the live entries that cover a sender, the most specific first.
func covering(t testing.TB, set *Set, ix *index.Index, text string) string {
	t.Helper()
	sender := testkit.Value(addr.Parse(text))(t)
	now := time.Now()
	matches := testkit.Value(ix.Lookup(nil, sender, now))(t)
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

// held are all entries of a set.
func held(s *Set) map[identity]*Entry {
	all := map[identity]*Entry{}
	v := s.view.Load()
	changes := v.sorted()
	if v.base != nil {
		changed := v.base.changedBy(changes)
		for i := range v.base.count {
			if !changed.has(i) {
				e := v.base.entry(i)
				all[e.identity()] = e
			}
		}
	}
	for _, e := range changes {
		if !e.gone {
			all[e.identity()] = e
		}
	}
	return all
}

// again is the journal that a state comes to.
func again(c *contents) []byte {
	all := slices.SortedFunc(maps.Values(c.entries), byNumber)
	var records []record
	for _, e := range all {
		records = append(records, recordOf(e))
	}
	for _, f := range c.folds {
		records = append(records, f.record())
	}
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.N, b.N) })
	if n := len(records); c.last > 0 && (n == 0 || records[n-1].N != c.last) {
		records = append(records, record{N: c.last, Op: opBase})
	}
	text := []byte(journalHead)
	for _, r := range records {
		text = r.append(text)
	}
	return text
}
