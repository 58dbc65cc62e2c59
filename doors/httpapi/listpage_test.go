package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/lists"
)

func TestListPage(t *testing.T) {
	f := newFixture(t, Settings{First: first}, "bad.example\nworse.example\nnonsense@@\n")
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
	f := newFixture(t, Settings{First: first, ListSettings: func(list string) (lists.Settings, bool) {
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
	for query, fault := range map[string]string{"format=none": "format:", "action=no": "action:", "list=other": "list:", "list=hosts&action=block": "action:", "colour=red": "colour: no such parameter"} {
		wantProblem(t, f.ask("POST", "/v1/lint?"+query, "a.example\n", bearFirst), http.StatusBadRequest, fault)
	}
	f.gives(t, http.StatusRequestEntityTooLarge, "POST", "/v1/lint", strings.Repeat("a.example\n", maxLint/10+1), bearFirst)
}

// TestOneReplayAtATime: another one is told when to come again.
func TestOneReplayAtATime(t *testing.T) {
	began, end := make(chan string), make(chan struct{})
	f := newFixture(t, Settings{First: first, Replay: func(_ context.Context, list string, since time.Time) (Replay, error) {
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
