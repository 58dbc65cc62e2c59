package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/records/audit"
	"blockd/records/correspondents"
	"blockd/records/history"
	"blockd/reload"
)

// fixture is a Server over a real index of one list, "bad". It has the fast path.
type fixture struct {
	*Server
	live   *index.Index
	reload func() // before each look at live; nil: nothing
	status reload.Status
}

func newFixture(t testing.TB, s Settings, list string) *fixture {
	t.Helper()
	f := &fixture{live: build(t, list), status: reload.Status{Ready: true, Since: time.Unix(1e9, 0)}}
	f.status.Generation, f.status.Files = f.live.Generation(), f.live.Lists()
	reg := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	live := func() *index.Index {
		if f.reload != nil {
			f.reload()
		}
		return f.live
	}
	checker := policy.New(live, policy.Settings{
		RecipientsExempt: []string{"postmaster"}, Owners: rule.DefaultOwners(),
		Policies: []rule.Recipients{{Recipients: []string{"vip@here.example"}}},
	}, log, reg)
	s.Fast = true
	f.Server = New(s, checker, func() reload.Status { return f.status }, reg, log)
	return f
}

// serve begins anew with other settings.
func (f *fixture) serve(s Settings) { f.Server = f.with(s).Server }

// with is a second server beside f, with other settings.
func (f *fixture) with(s Settings) *fixture {
	return &fixture{Server: New(s, f.checker, func() reload.Status { return f.status }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))}
}

// running serves f on a listener until stop is called, or the test ends.
func (f *fixture) running(t testing.TB, l net.Listener) (stop func()) {
	return testkit.Running(t, func(ctx context.Context) { testkit.Should(t, f.Serve(ctx, l)) })
}

// newHistory is an empty history in a folder of its own.
func newHistory(t testing.TB) *history.Log {
	t.Helper()
	past := testkit.Value(history.Open(history.Settings{Folder: filepath.Join(t.TempDir(), "history"), Max: history.MinMax, Keep: time.Hour}))(t)
	t.Cleanup(func() { past.Close() })
	return past
}

// newAudit is an empty journal in a folder of its own.
func newAudit(t testing.TB) *Audit {
	folder := filepath.Join(t.TempDir(), "audit")
	return &Audit{audit.New(audit.Settings{Folder: folder, Max: 1 << 20, Keep: time.Hour}), folder}
}

// newCorrespondents is an empty set of the people that local users write to.
func newCorrespondents(t testing.TB) *correspondents.Set {
	t.Helper()
	set, _, err := correspondents.Open(correspondents.Settings{Path: filepath.Join(t.TempDir(), "set"), Keep: 365 * 24 * time.Hour})
	testkit.Must(t, err)
	t.Cleanup(set.Close)
	return set
}

func build(t testing.TB, list string) *index.Index {
	t.Helper()
	s := indexes.Source(t, "bad", list)
	s.Settings.Reason = "Bulk & <spam>"
	return indexes.Build(t, s)
}

// first is the token in the file that Settings.First may name, and bearFirst its header.
const (
	first     = "blockd_the-first-token-of-a-test" // see firstFile
	bearFirst = "Authorization: Bearer " + first
)

// ask sends one request to the handler. A header is "Name: value".
func (f *fixture) ask(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:8025"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, r)
	return w
}

// gives asks, and wants a status.
func (f *fixture) gives(t *testing.T, status int, method, target, body string, headers ...string) {
	t.Helper()
	if w := f.ask(method, target, body, headers...); w.Code != status {
		t.Errorf("%s %.200s with %q is %d, want %d: %s", method, target, headers, w.Code, status, w.Body)
	}
}

// says asks, and wants a status and a part of the answer.
func (f *fixture) says(t *testing.T, status int, part, method, target, body string, headers ...string) {
	t.Helper()
	w := f.ask(method, target, body, headers...)
	testkit.Got(w.Code, w.Body)(t, method+" "+target, status, "…"+part+"…")
}

// decoded is a JSON answer of the wanted status and type.
func decoded[T any](t *testing.T, w *httptest.ResponseRecorder, status int, contentType string) (v T) {
	t.Helper()
	got := w.Header().Get("Content-Type")
	testkit.MustGot(w.Code, got, w.Body)(t, "answer", status, contentType, "…")
	d := json.NewDecoder(w.Body)
	d.DisallowUnknownFields()
	testkit.Must(t, d.Decode(&v))
	testkit.MustGot(d.Token())(t, "behind the answer", "…", io.EOF)
	return v
}

const (
	asJSON    = "application/json"
	asProblem = "application/problem+json"
	asStream  = "application/x-ndjson"
)

// wantProblem holds an error to RFC 9457.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, words string) {
	t.Helper()
	p := decoded[problem](t, w, status, asProblem)
	testkit.Got(p.Status, p.Title, p.Detail)(t, "problem", status, http.StatusText(status), "…"+words+"…")
}

// firstFile is a file with the token of a first start.
func firstFile(t testing.TB) string { return testkit.File(t, "first.token", first+"\n") }
