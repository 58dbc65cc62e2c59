package httpapi

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/records/pause"
)

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
