package httpapi

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/doors/forget"
	"blockd/doors/httpapi/session"
	"blockd/index"
	"blockd/internal/testkit"
	"blockd/policy"
	"blockd/records/history"
	"blockd/reload"
)

// A program tells to whom users have written; who may know that sees it in explanations, until the person is forgotten. The
// journal does not name it.
func TestLearnExplainForget(t *testing.T) {
	f, dir := newEntryFixture(t), t.TempDir()
	set := newCorrespondents(t)
	past := newHistory(t)
	past.Add(history.Record{Time: time.Now(), Door: "smtp", Outcome: "accept", Verdict: "clear", Sender: "bob@there.example", Recipient: "anna@here.example"})
	f.settings.Audit = newAudit(t)
	f.settings.Person = &forget.Places{Correspondents: set, Index: filepath.Join(dir, "index"), History: past.Forget}
	sessions, secret := sessionsOfBob(t, dir)
	f.settings.Person.Sessions = func(names func(string) bool) (int, error) { return sessions.Forget(time.Now(), names) }
	ix := f.fixture.live
	checker := policy.New(func() *index.Index { return ix }, policy.Settings{Correspondents: policy.Correspondents{Known: set}}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	f.Server = New(f.settings, checker, func() reload.Status { return f.status }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))

	learn := `{"sent":[{"sender":"anna@here.example","recipient":"bob@there.example","time":"` + time.Now().UTC().Format(time.RFC3339) + `"},{"sender":"anna@here.example","recipient":"carl@here.example","time":"2026-01-01T00:00:00Z"}]}`
	for _, path := range []string{"/v1/correspondents", "/v1/forget"} {
		f.gives(t, http.StatusBadRequest, "POST", path, `{"typo":1}`, f.write)
	}
	if w := f.ask("POST", "/v1/correspondents", learn, f.write); w.Code != 200 || w.Body.String() != `{"recipients":1,"known":1}`+"\n" {
		t.Errorf("learn: %d, %s", w.Code, w.Body)
	}
	explained := func(headers ...string) string {
		w := f.ask("GET", "/v1/check?explain=1&sender=bob@there.example", "", headers...)
		var a struct {
			Explain struct {
				Correspondent string `json:"correspondent"`
			} `json:"explain"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatalf("%d, %s", w.Code, w.Body)
		}
		return a.Explain.Correspondent
	}
	testkit.Equal(t, "explained to a reader", explained(f.read), time.Now().UTC().Format(time.DateOnly))
	testkit.Lacks(t, f.ask("GET", "/v1/check?explain=1&sender=bob@there.example", "").Body.String(), "correspondent")
	if w := f.ask("POST", "/v1/forget", `{"address":"Bob@there.example"}`, f.write); w.Code != 200 || w.Body.String() != `{"correspondent":true,"recent":false,"held":0,"decisions":1,"requests":0,"proposals":0,"hits":0,"report":0,"sessions":1,"own":0,"entries":0,"quarantined":0,"remains":[]}`+"\n" {
		t.Errorf("forget: %d, %s", w.Code, w.Body)
	}
	testkit.Got(sessions.Find(time.Now(), secret))(t, "the session of a forgotten person", "…", false, "…")
	if text, err := os.ReadFile(filepath.Join(dir, "sessions")); err != nil || strings.Contains(string(text), "there.example") || !strings.Contains(string(text), "carl") {
		t.Errorf("the file of sessions: %v, %s", err, text)
	}
	testkit.Equal(t, "a forgotten person is explained", explained(f.read), "")
	w := f.ask("GET", "/v1/audit", "", f.read)
	if text := w.Body.String(); !strings.Contains(text, "person.forget") || !strings.Contains(text, "correspondents.learn") || strings.Contains(strings.ToLower(text), "bob") {
		t.Errorf("the journal: %s", text)
	}
}

// sessionsOfBob are two: one of bob, of which it returns the secret, and one of another.
func sessionsOfBob(t *testing.T, dir string) (set *session.Set, secret string) {
	t.Helper()
	set, err := session.Open(session.Settings{Path: filepath.Join(dir, "sessions"), Idle: time.Hour, Max: time.Hour})
	testkit.Must(t, err)
	for _, p := range []session.Person{{Subject: "7", Name: "carl", Scope: "read"}, {Subject: "8", Name: "Bob", Scope: "write", Owners: []string{"bob@there.example"}}} {
		if secret, _, err = set.Begin(time.Now(), session.Session{Person: &p}); err != nil {
			t.Fatal(err)
		}
	}
	return set, secret
}
