package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/index"
	"blockd/index/kept"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/policy/hits"
	"blockd/records/pause"
	"blockd/reload"
)

func TestListPage(t *testing.T) {
	f := newFixture(t, Settings{First: firstFile(t)}, "bad.example\nworse.example\nnonsense@@\n")
	for range 3 {
		f.ask("GET", "/v1/check?sender=a@bad.example", "")
	}
	p := decoded[ListPage](t, f.ask("GET", "/v1/lists/bad", "", bearFirst), http.StatusOK, asJSON)
	if p.Worth.List != "bad" || len(p.Files) != 1 || len(p.Files[0].Refused) != 1 || p.Files[0].Refused[0].Line != 3 || len(p.Best) != 1 || p.Best[0].Entry != "bad.example" || p.Best[0].Sole != 3 || len(p.Worst) != 0 {
		t.Errorf("page is %+v", p)
	}
	wantProblem(t, f.ask("GET", "/v1/lists/other", "", bearFirst), http.StatusNotFound, `no list "other"`)
	f.gives(t, http.StatusUnauthorized, "GET", "/v1/lists/bad", "")
}

func TestLint(t *testing.T) {
	f := newFixture(t, Settings{First: firstFile(t), ListSettings: func(list string) (lists.Settings, bool) {
		return lists.Settings{Format: "hosts"}, list == "hosts"
	}}, "bad.example\n")
	post := func(query, text string) Lint {
		t.Helper()
		return decoded[Lint](t, f.ask("POST", "/v1/lint?"+query, text, bearFirst), http.StatusOK, asJSON)
	}
	l := post("format=plain", "a.example\nnonsense@@\n# comment\na.example\n")
	if l.Summary.Entries != 2 || l.Summary.Errors != 1 || l.Summary.Verdict != "loaded" || len(l.Items) != 2 || l.Items[0].Line != 2 || l.Items[0].Kind != "err" || l.Items[1].Class != "dup" {
		t.Errorf("lint is %+v", l)
	}
	if l := post("list=hosts", "0.0.0.0 ads.example\n"); l.Summary.Format != "hosts" || l.Summary.Entries != 1 {
		t.Errorf("by a list's settings: %+v", l)
	}
	var many strings.Builder
	for i := range 300 {
		fmt.Fprintf(&many, "nonsense@@%d\nok%d.example\n", i, i)
	}
	if l := post("format=plain", many.String()); len(l.Items) != mostFound || l.More != 100 || l.Summary.Entries != 300 {
		t.Errorf("many: %d items, %d more, %+v", len(l.Items), l.More, l.Summary)
	}
	if l := post("", "\xff\xfe\x00 no text at all"); l.Summary.Verdict != "refused" {
		t.Errorf("no text: %+v", l)
	}
	// What costs much to read costs a request no more than others, and its answer is no longer than its text.
	costly := f.ask("POST", "/v1/lint?format=plain", strings.Repeat(`/^\pL{1000}[0-9]{1,30}@evil[.]example$/`+"\n", 25_000), bearFirst)
	if costly.Code != http.StatusOK && costly.Code != http.StatusRequestEntityTooLarge || costly.Body.Len() > 1<<20 {
		t.Errorf("costly: %d, %d octets", costly.Code, costly.Body.Len())
	}
	for query, fault := range map[string]string{"format=none": "format:", "action=no": "action:", "list=other": "list:", "list=hosts&action=block": "action:", "colour=red": "colour: no such parameter"} {
		wantProblem(t, f.ask("POST", "/v1/lint?"+query, "a.example\n", bearFirst), http.StatusBadRequest, fault)
	}
	f.gives(t, http.StatusRequestEntityTooLarge, "POST", "/v1/lint", strings.Repeat("a.example\n", maxLint/10+1), bearFirst)
}

// TestOneReplayAtATime: another one is told when to come again.
func TestOneReplayAtATime(t *testing.T) {
	began, end := make(chan string), make(chan struct{})
	f := newFixture(t, Settings{First: firstFile(t), Replay: func(_ context.Context, list string, since time.Time) (Replay, error) {
		began <- list
		<-end
		return Replay{Complete: true, BySender: []ReplayRow{}, ByDomain: []ReplayRow{}, ByEntry: []ReplayRow{}}, nil
	}}, "bad.example\n")
	done := make(chan Replay)
	go func() {
		done <- decoded[Replay](t, f.ask("GET", "/v1/lists/bad/replay?span=24h", "", bearFirst), http.StatusOK, asJSON)
	}()
	testkit.Equal(t, "list", <-began, "bad")
	if w := f.ask("GET", "/v1/lists/bad/replay", "", bearFirst); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("beside another one: %d", w.Code)
	}
	close(end)
	if r := <-done; r.List != "bad" || !r.Complete {
		t.Errorf("replay is %+v", r)
	}
}

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

func newPauseFixture(t *testing.T) *entryFixture {
	t.Helper()
	f := newEntryFixture(t)
	set := testkit.Value(pause.Open(filepath.Join(t.TempDir(), "pauses")))(t)
	f.status.Files = f.fixture.live.Lists()
	f.settings.Pauses = set
	f.serve(f.settings)
	return f
}

func TestPauseAndResume(t *testing.T) {
	f := newPauseFixture(t)
	row := func() *ListPause {
		t.Helper()
		var table ListTable
		w := f.ask("GET", "/v1/lists", "", f.write)
		testkit.Must(t, json.Unmarshal(w.Body.Bytes(), &table))
		testkit.MustEqual(t, "status", w.Code, 200)
		for _, l := range table.Worth {
			if l.List == "bad" {
				return l.Pause
			}
		}
		t.Fatal("no list bad")
		return nil
	}
	if p := row(); p != nil {
		t.Fatalf("paused: %+v", p)
	}
	var done ListPaused
	w := f.ask("POST", "/v1/lists/bad/pause", `{"for":"2h","why":"refuses the bank","author":"jo"}`, f.write)
	if err := json.Unmarshal(w.Body.Bytes(), &done); err != nil || w.Code != 200 || done.Pause == nil {
		t.Fatalf("%d, %s", w.Code, w.Body)
	}
	if left := time.Until(done.Pause.Until); left > 2*time.Hour || left < 2*time.Hour-time.Minute || done.Pause.By != "jo (helpdesk)" || done.Pause.Why != "refuses the bank" {
		t.Errorf("%+v", done.Pause)
	}
	if p := row(); p == nil || *p != *done.Pause {
		t.Errorf("/v1/lists has %+v, want %+v", p, done.Pause)
	}
	if w := f.ask("POST", "/v1/lists/bad/pause", "", f.write); w.Code != 200 || time.Until(row().Until) > time.Hour {
		t.Errorf("paused anew: %d, %+v", w.Code, row())
	}
	if w := f.ask("POST", "/v1/lists/bad/resume", "", f.write); w.Code != 200 || row() != nil {
		t.Errorf("resumed: %d, %+v", w.Code, row())
	}
	for _, tt := range []struct {
		path, body string
		status     int
		words      string
	}{
		{"bad/resume", "", http.StatusConflict, "not paused"},
		{"bad/resume", `{"for":"1h"}`, http.StatusBadRequest, "counts at once"},
		{"none/pause", "", http.StatusNotFound, `no list "none"`},
		{"bad%0Ax/pause", "", http.StatusNotFound, "no list"},
		{"bad/pause", `{"for":"soon"}`, http.StatusBadRequest, "for: "},
		{"bad/pause", `{"for":"32d"}`, http.StatusBadRequest, "31 days"},
		{"bad/pause", `{"for":"0s"}`, http.StatusBadRequest, ""},
		{"bad/pause", `{"why":"a\nb"}`, http.StatusBadRequest, "one line"},
		{"bad/pause", `{"why":"` + strings.Repeat("x", 300) + `"}`, http.StatusBadRequest, "one line"},
		{"bad/pause", `{"what":1}`, http.StatusBadRequest, "not the JSON"},
		{"bad/pause", `x`, http.StatusBadRequest, "not the JSON"},
		{"bad/pause", `{"why":"` + strings.Repeat("x", 5000) + `"}`, http.StatusRequestEntityTooLarge, "octets"},
	} {
		wantProblem(t, f.ask("POST", "/v1/lists/"+tt.path, tt.body, f.write), tt.status, tt.words)
		if row() != nil {
			t.Fatalf("%s %s has paused the list", tt.path, tt.body)
		}
	}
}

// newUndoFixture has list bulk, which held old.example, then keep.example and new.example; a proposal waits of it.
func newUndoFixture(t *testing.T) (f *entryFixture, store *kept.Store, waits string) {
	t.Helper()
	f, dir := newEntryFixture(t), t.TempDir()
	store = &kept.Store{Folder: filepath.Join(dir, "kept"), Keep: 10, Bytes: 1 << 30}
	content := func(text string) kept.Content {
		t.Helper()
		path := filepath.Join(dir, "bulk.txt")
		testkit.Write(t, path, text)
		s := index.Source{List: "bulk", Path: path, Settings: lists.Settings{Format: "plain"}}
		draft := testkit.Value(index.Build(t.Context(), filepath.Join(dir, "x.bdx"), []index.Source{s}, index.Options{}))(t)
		defer draft.Discard()
		row := draft.Index().Lists()[0]
		testkit.Must(t, index.ParseSegment(t.Context(), filepath.Join(dir, "cache"), s, 0))
		return kept.Content{{Path: []byte(path), Hash: "x", Segment: kept.SegmentOf(row.Summary.Hash, s.Settings), Entries: row.Entries()}}
	}
	began := time.Now().Add(-time.Hour)
	record := func(id string, c kept.Content) {
		t.Helper()
		began = began.Add(time.Minute)
		if errs := store.Record(filepath.Join(dir, "cache"), kept.Generation{ID: id, Time: began, How: "built", Lists: []kept.State{{Name: "bulk", Entries: c.Entries(), Files: c}}}); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	record("aaaaaaaaaaaaaaaa", content("old.example\nkeep.example\n"))
	now := content("keep.example\nnew.example\n")
	record("bbbbbbbbbbbbbbbb", now)
	next := content("keep.example\nnew.example\nbank.example\nbank2.example\n")
	testkit.Must(t, store.Claim(filepath.Join(dir, "cache"), next[0].Segment))
	if err := store.ChangePins(func([]kept.Pin) ([]kept.Pin, error) {
		return []kept.Pin{{List: "bulk", Content: now, Served: began, Since: began, How: kept.Review,
			Proposal: &kept.Proposal{Content: next, Since: began, Findings: []string{"it is twice as long"}, Weighed: &kept.Weighed{Held: 1, First: []kept.HeldBack{{Entry: "bank.example", Senders: 3}}}}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	f.settings.Undo = &Undo{Kept: store, Review: func(string) bool { return true }, Lists: func() []string { return []string{"bulk"} },
		Serves: func(context.Context, string) error { return nil }, HeldBack: func(string) (int, []kept.HeldBack) { return 1, []kept.HeldBack{{Entry: "bank.example", Senders: 3}} }}
	f.serve(f.settings)
	return f, store, next.ID()
}

func TestUndoFaults(t *testing.T) {
	f, store, _ := newUndoFixture(t)
	for _, tt := range []struct {
		path, body string
		status     int
		words      string
	}{
		{"bulk/adopt", `{"if":"0123456789abcdef"}`, http.StatusConflict, "another content by now"},
		{"none/adopt", "", http.StatusNotFound, `no list "none"`},
		{"none/rollback", "", http.StatusNotFound, `no list "none"`},
		{"bulk/rollback", `{"to":"soon"}`, http.StatusBadRequest, "want a time"},
		{"bulk/rollback", `{"to":"7d"}`, http.StatusConflict, "is not kept"},
		{"bulk/rollback", `{"to":"cccccccccccc"}`, http.StatusConflict, "no generation"},
		{"bulk/rollback", `{"why":"a\nb"}`, http.StatusBadRequest, "one line"},
		{"bulk/rollback", `{"what":1}`, http.StatusBadRequest, "not the JSON"},
	} {
		wantProblem(t, f.ask("POST", "/v1/lists/"+tt.path, tt.body, f.write), tt.status, tt.words)
	}
	wantProblem(t, f.ask("GET", "/v1/lists/none/diff", "", f.read), http.StatusNotFound, `no list "none"`)
	wantProblem(t, f.ask("GET", "/v1/lists/bulk/diff?limit=-1", "", f.read), http.StatusBadRequest, "limit: ")
	if pins, err := store.Pins(); err != nil || len(pins) != 1 || pins[0].How != kept.Review || pins[0].Proposal == nil {
		t.Errorf("%+v, %v: something was done", pins, err)
	}
}

func TestUndoDiffAdoptAndRollback(t *testing.T) {
	f, _, waits := newUndoFixture(t)
	diff := func(query string) (d ListDiff) {
		t.Helper()
		w := f.ask("GET", "/v1/lists/bulk/diff"+query, "", f.read)
		testkit.Must(t, json.Unmarshal(w.Body.Bytes(), &d))
		testkit.MustEqual(t, "status", w.Code, http.StatusOK)
		return d
	}
	if d := diff(""); !d.Waits || d.Content != waits || !slices.Equal(d.Added, []string{"bank.example", "bank2.example"}) || len(d.Removed) != 0 || d.Findings[0] != "it is twice as long" || len(d.Findings) != 2 || d.Weighed == nil || d.Weighed.Held != 1 || d.Weighed.First[0].Entry != "bank.example" {
		t.Errorf("%+v", d)
	}
	for limit, want := range map[string][]string{"0": {}, "1": {"bank.example"}, "2": {"bank.example", "bank2.example"}} {
		if d := diff("?limit=" + limit); !slices.Equal(d.Added, want) || d.Counts != (DiffCounts{Added: 2}) {
			t.Errorf("limit %s: %+v", limit, d)
		}
	}
	if d := diff("?since=aaaaaaaa&limit=1"); d.Waits || !slices.Equal(d.Added, []string{"new.example"}) || !slices.Equal(d.Removed, []string{"old.example"}) {
		t.Errorf("%+v", d)
	}
	act := func(what, body string) (done ListUndone) {
		t.Helper()
		w := f.ask("POST", "/v1/lists/bulk/"+what, body, f.write)
		if err := json.Unmarshal(w.Body.Bytes(), &done); err != nil || w.Code != http.StatusOK || !done.Serves || done.Held == nil {
			t.Fatalf("%s: %d, %v: %s", what, w.Code, err, w.Body)
		}
		return done
	}
	if done := act("adopt", `{"if":"`+waits+`","author":"jo"}`); done.Held.How != kept.Review || done.Held.By != "jo (helpdesk)" || done.Held.Proposal != nil || done.HeldBack != 1 || len(done.HeldFirst) != 1 {
		t.Errorf("%+v", done)
	}
	if done := act("rollback", `{"to":"aaaaaaaa","why":"refuses the bank"}`); done.Held.How != kept.Rollback || done.Held.Why != "refuses the bank" {
		t.Errorf("%+v", done.Held)
	}
}

// A list that waits for its first adoption has no file in service, and a row all the same.
func TestListThatWaitsHasARow(t *testing.T) {
	f := newEntryFixture(t)
	f.status.Pins = []kept.Pin{{List: "new", Waits: true, How: kept.Review, Proposal: &kept.Proposal{}}}
	table := decoded[ListTable](t, f.ask("GET", "/v1/lists", "", f.read), http.StatusOK, asJSON)
	for _, w := range table.Worth {
		if w.List == "new" {
			if w.State != ListWaits || w.Pinned == nil || w.Pinned.Proposal == nil {
				t.Errorf("%+v", w)
			}
			return
		}
	}
	t.Errorf("no row: %+v", table.Worth)
}

// TestWhoAndWhyWantAToken: who has taken a list back or paused it, and why, is confidential as the entries of operators are.
func TestWhoAndWhyWantAToken(t *testing.T) {
	f, all := newChangingFixture(t)
	for _, name := range []string{"rollback", "pause"} {
		list, body := "bulk", all["POST /v1/lists/{list}/rollback"].body
		if name == "pause" {
			list, body = "bad", `{"for":"1h"}`
		}
		body = body[:len(body)-1] + `,"author":"jo","why":"refuses pat@bank.example"}`
		f.gives(t, http.StatusOK, "POST", "/v1/lists/"+list+"/"+name, body, f.write, "Content-Type: application/json")
	}
	store := f.Server.settings.Undo.Kept
	f.status.Pins = append(f.status.Pins, kept.Pin{List: "new", Waits: true, How: kept.Review, By: "jo", Why: "refuses pat@bank.example"})
	if errs := store.Record(t.TempDir(), kept.Generation{ID: "cccccccccccccccc", Time: time.Now(), How: kept.Rollback, By: "jo", Why: "refuses pat@bank.example"}); len(errs) > 0 {
		t.Fatal(errs)
	}
	s := f.Server.settings
	s.Tokens, s.First = "", firstFile(t) // so that others may ask without one
	f.serve(s)
	for path, times := range map[string]int{"/v1/generations": 1, "/v1/lists": 2} {
		for header, want := range map[string]int{"Authorization: Bearer " + first: times, "X-None: 1": 0} {
			w := f.ask("GET", path, "", header)
			for _, secret := range []string{`"by":"jo`, "pat@bank.example"} {
				n := strings.Count(w.Body.String(), secret)
				testkit.Got(w.Code, n, secret, w.Body)(t, fmt.Sprintf("%s, %.15s", path, header), http.StatusOK, want, "…", "…")
			}
		}
	}
}
