package httpapi

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/records/audit"
)

func newAuditFixture(t *testing.T) *entryFixture {
	t.Helper()
	f := newPauseFixture(t)
	f.settings.Audit = newAudit(t)
	f.serve(f.settings)
	return f
}

func (f *entryFixture) lines(t *testing.T, query string) AuditList {
	t.Helper()
	return decoded[AuditList](t, f.ask("GET", "/v1/audit"+query, "", f.read), http.StatusOK, asJSON)
}

// What is changed over HTTP is in the journal with who, what and why, and is found there.
func TestAuditOverHTTP(t *testing.T) {
	f := newAuditFixture(t)
	if l := f.lines(t, ""); l.Lines == nil || len(l.Lines) != 0 {
		t.Errorf("before the first change: %+v", l)
	}
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/v1/lists/bad/pause", `{"for":"2h","why":"refuses the bank","author":"jo"}`},
		{"POST", "/v1/lists/bad/pause", `{"for":"soon"}`}, // refused
		{"POST", "/v1/lists/bad/resume", ``},
		{"POST", "/v1/lists/bad/resume", ``}, // it is not paused any more
	} {
		f.ask(tt.method, tt.path, tt.body, f.write)
	}
	l := f.lines(t, "")
	testkit.MustEqual(t, l, len(l.Lines), 2)
	if p := l.Lines[1]; p.Action != audit.ListPause || p.By != "jo (helpdesk)" || p.Subject != "bad" || p.Why != "refuses the bank" || !strings.HasPrefix(p.Detail, "until ") {
		t.Errorf("%+v", p)
	}
	if r := l.Lines[0]; r.Action != audit.ListResume || r.By != "helpdesk" || r.Previous != l.Lines[1].Hash {
		t.Errorf("%+v", r)
	}
	for query, want := range map[string]int{"?action=list": 2, "?action=list.pause": 1, "?q=BANK": 1, "?by=jo": 1, "?action=entry": 0, "?since=2100-01-01T00:00:00Z": 0, "?until=2100-01-01T00:00:00Z": 2, "?limit=1": 1} {
		testkit.Equal(t, query, len(f.lines(t, query).Lines), want)
	}
	page := f.lines(t, "?limit=1")
	if rest := f.lines(t, "?limit=1&cursor="+page.Next); page.Next == "" || len(rest.Lines) != 1 || rest.Lines[0].Hash != l.Lines[1].Hash || rest.Next != "" {
		t.Errorf("next %q, then %+v", page.Next, rest)
	}
	for query, want := range map[string]string{"?limit=0": "limit: want 1 to 1000", "?since=soon": "since: want a time", "?cursor=7": "cursor: no such cursor", "?who=jo": "who", "?by=" + strings.Repeat("x", 1001): "by: over"} {
		w := f.ask("GET", "/v1/audit"+query, "", f.read)
		testkit.Got(w.Code, w.Body.String())(t, query, http.StatusBadRequest, "…"+want+"…")
	}
	f.gives(t, http.StatusUnauthorized, "GET", "/v1/audit", "")
	wantProblem(t, newFixture(t, Settings{}, "bad.example\n").ask("GET", "/v1/audit", ""), http.StatusNotFound, "no such resource")
}

// A change whose line cannot be written is refused, and nothing has changed.
func TestNoChangeWithoutItsLine(t *testing.T) {
	f := newAuditFixture(t)
	if err := os.WriteFile(f.settings.Audit.Folder, nil, 0o600); err != nil { // no folder can be made there
		t.Fatal(err)
	}
	w := f.ask("POST", "/v1/lists/bad/pause", `{}`, f.write)
	testkit.Got(w.Code, w.Body.String())(t, "without room for the journal", http.StatusInsufficientStorage, "…not changed: the audit journal cannot be written…")
	if _, paused := f.settings.Pauses.Of("bad", time.Now()); paused {
		t.Error("paused all the same")
	}
}
