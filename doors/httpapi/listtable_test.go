package httpapi

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/policy/hits"
	"blockd/reload"
)

// TestWorthOfAList is the answer of a server whose list had hits.
func TestWorthOfAList(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\nx@bad.example\n")
	f.status.Worth = f.live.Worth()
	for range 3 {
		f.ask("GET", "/v1/check?sender=a@bad.example", "")
	}
	got := decoded[ListTable](t, f.ask("GET", "/v1/lists", ""), http.StatusOK, asJSON)
	testkit.MustEqual(t, got, len(got.Worth), 1)
	w := got.Worth[0]
	if w.List != "bad" || w.Action != "block" || w.Mode != "enforce" || w.Files != 1 || w.Entries != 2 || w.Keys != 2 || w.Unique != 2 ||
		w.State != ListOK || *w.Hits != 3 || *w.Sole != 3 || *w.Overridden != 0 || w.LastHit == nil || w.Modified != nil ||
		w.Overlaps == nil || w.Problems == nil {
		t.Errorf("%+v", w)
	}
}

// tableRow is a file of a list in a status.
func tableRow(list, path string, verdict lists.Verdict, why string, entries int) index.ListInfo {
	return index.ListInfo{Source: index.Source{List: list, Path: path}, Summary: lists.Summary{Verdict: verdict, Why: why, Entries: entries}}
}

// TestListTable: the files of a glob are one list, and the worst of them is its
// state.
func TestListTable(t *testing.T) {
	old, young := time.Unix(1e9, 0), time.Unix(2e9, 0)
	table := NewListTable(reload.Status{
		Files: []index.ListInfo{
			tableRow("a", "a1", lists.Loaded, "", 10), tableRow("a", "a2", lists.Loaded, "", 5),
			tableRow("b", "b1", lists.Refused, "html: a page", 7), tableRow("c", "c1", lists.Refused, "missing: gone", 0),
			tableRow("d", "d1", lists.Loaded, "", 1),
		},
		Stale: []string{"a"},
		Refusals: []reload.Refusal{
			{List: "a", File: "a2", Class: lists.HTML, Text: "list a: a2: html: a page"},
			{List: "e", File: "e*", Class: lists.Missing, Text: "list e: e*: missing: no file matches"},
		},
		Worth:    []index.ListWorth{{List: "a", Keys: 12, Unique: 9}, {List: "b"}, {List: "c"}, {List: "d", Keys: 1}},
		Overlaps: []index.Overlap{{A: "a", B: "b", Keys: 1}, {A: "a", B: "d", Keys: 3}},
		Dates:    map[[2]string]time.Time{{"a", "a1"}: young, {"a", "a2"}: old},
	}, []hits.List{{Name: "d", Hits: 4, Last: young}, {Name: "gone", Hits: 1}})

	var states []ListState
	for _, f := range table.Lists {
		states = append(states, f.State)
	}
	testkit.EqualSlices(t, "files", states, []ListState{ListStale, ListRefused, ListRefused, ListMissing, ListOK})
	var names []string
	states = nil
	for _, w := range table.Worth {
		names, states = append(names, w.List), append(states, w.State)
	}
	if want := []ListState{ListRefused, ListRefused, ListMissing, ListOK, ListMissing}; !slices.Equal(states, want) || !slices.Equal(names, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("lists %q are %q, want %q", names, states, want)
	}
	a, b, d, e := table.Worth[0], table.Worth[1], table.Worth[3], table.Worth[4]
	testkit.Got(a.Files, a.Entries, a.Keys, a.Unique, a.Modified.Equal(old), a.Stale, len(a.Problems), *a.Hits)(t, "a", 2, 15, 12, 9, true, true, 1, 0)
	if !slices.Equal(a.Overlaps, []ListOverlap{{"d", 3}, {"b", 1}}) || !slices.Equal(d.Overlaps, []ListOverlap{{"a", 3}}) {
		t.Errorf("overlaps of a %v, of d %v", a.Overlaps, d.Overlaps)
	}
	testkit.Equal(t, "entries of a file that was left out", b.Entries, 0)
	testkit.Got(*d.Hits, d.LastHit.Equal(young), e.Action, len(e.Problems))(t, "d", 4, true, "", 1)
	if table := NewListTable(reload.Status{Files: []index.ListInfo{tableRow("a", "a1", lists.Loaded, "", 1)}}, nil); table.Worth[0].Hits != nil {
		t.Error("hits that nobody has counted")
	}
}

// TestListWithRefusedLines: a list that serves without some of its lines is not plainly ok.
func TestListWithRefusedLines(t *testing.T) {
	typo, left := tableRow("typo", "t1", lists.Loaded, "", 4), tableRow("left", "l1", lists.Refused, "html: a page", 0)
	typo.Summary.Errors, left.Summary.Errors = 2, 3
	table := NewListTable(reload.Status{
		Files:   []index.ListInfo{typo, tableRow("typo", "t2", lists.Loaded, "", 1), left, tableRow("old", "o", lists.Loaded, "", 1)},
		Remarks: []string{"a remark"},
		Stale:   []string{"old"},
	}, nil)
	if f := table.Lists; f[0].State != ListPartial || f[1].State != ListOK || f[2].State != ListRefused {
		t.Errorf("files are %q, %q and %q", f[0].State, f[1].State, f[2].State)
	}
	if w := table.Worth; w[0].State != ListPartial || w[0].Errors != 2 || w[1].State != ListRefused || w[1].Errors != 0 || w[2].State != ListStale {
		t.Errorf("lists %+v", w)
	}
	testkit.EqualSlices(t, "remarks", table.Remarks, []string{"a remark"})
}
