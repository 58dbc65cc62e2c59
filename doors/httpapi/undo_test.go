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
)

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
	const first = "the-token-of-the-first-start"
	s := f.Server.settings
	s.Tokens, s.First = "", first // so that others may ask without one
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
