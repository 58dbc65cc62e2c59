package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/records/letter"
	"blockd/reload"
)

func TestReadiness(t *testing.T) {
	for _, tt := range []struct {
		name     string
		ready    bool
		problems []string
		remarks  []string
		code     int
		body     string
	}{
		{"well", true, nil, nil, http.StatusOK, "ok\n"},
		{"with a remark", true, nil, []string{"list a: 3 lines\nnot read"}, http.StatusOK, "ok\nlist a: 3 lines?not read\n"},
		{"old generation serves", true, []string{"list a: a.txt: missing: gone", "list b: odd\nname"}, []string{"remark"}, http.StatusOK,
			"degraded\nlist a: a.txt: missing: gone\nlist b: odd?name\nremark\n"},
		{"a list has never loaded", true, []string{"list a: a.txt: missing: gone"}, nil, http.StatusOK,
			"degraded: 13 of 14 lists filter\nlist a: a.txt: missing: gone\n"},
		{"no list has ever loaded", false, []string{"list a: a.txt: missing: gone"}, nil, http.StatusServiceUnavailable,
			"not ready\nlist a: a.txt: missing: gone\n"},
		{"for a reason unknown", false, nil, nil, http.StatusServiceUnavailable, "not ready\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, Settings{}, "bad.example\n")
			f.status.Ready, f.status.Problems, f.status.Remarks = tt.ready, tt.problems, tt.remarks
			if tt.name == "a list has never loaded" {
				f.status.Filtering, f.status.Lists = 13, 14
			}
			if w := f.ask("GET", "/readyz", ""); w.Code != tt.code || w.Body.String() != tt.body {
				t.Errorf("/readyz is %d %q, want %d %q", w.Code, w.Body, tt.code, tt.body)
			}
			if w := f.ask("GET", "/healthz", ""); w.Code != http.StatusOK || w.Body.String() != "ok\n" {
				t.Errorf("/healthz is %d %q", w.Code, w.Body)
			}
		})
	}
}

func TestLists(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n192.0.2.0/24\nno entry\n")
	f.status.Stale = []string{"bad"}
	got := decoded[ListTable](t, f.ask("GET", "/v1/lists", ""), http.StatusOK, asJSON)
	if len(got.Lists) != 1 || got.Generation != f.live.Generation() || !got.Ready || got.Problems == nil {
		t.Fatalf("lists %+v", got)
	}
	row := got.Lists[0]
	if hash := row.Hash; len(hash) != 32 || hash == strings.Repeat("0", 32) {
		t.Errorf("hash %q", hash)
	}
	row.Hash, row.File = "", filepath.Base(row.File)
	row.Modified = nil // not known to the fixture
	want := ListFile{List: "bad", File: "bad.txt", Format: "plain", Action: "block", Mode: "enforce", Verdict: "loaded",
		Lines: 3, Entries: 2, Errors: 1, Networks: 1, Bytes: 34, Stale: true, State: ListStale,
		Classes: []ListClass{{"syntax", 1}}, Refused: []ListLine{{3, "syntax", "more than one word; write one entry a line"}}}
	if !reflect.DeepEqual(row, want) {
		t.Errorf("row %+v, want %+v", row, want)
	}
}

func TestListsAskedInAWrongWay(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	for query, words := range map[string]string{"entries=%": "invalid URL escape", "entries=-1": "0 to 1000", "entries=1001": "0 to 1000", "entries=1&entries=2": "want one"} {
		wantProblem(t, f.ask("GET", "/v1/lists?"+query, ""), http.StatusBadRequest, words)
	}
}

func TestRoutes(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	if w := f.ask("GET", "/", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "/v1/check") || !strings.Contains(w.Body.String(), "/metrics") {
		t.Errorf("/ is %d:\n%s", w.Code, w.Body)
	}
	f.gives(t, http.StatusOK, "HEAD", "/v1/lists", "")
	wantProblem(t, f.ask("GET", "/v1/nothing", ""), http.StatusNotFound, "no such resource")
	wantProblem(t, f.ask("GET", "/v1/check/x", ""), http.StatusNotFound, "no such resource")
	for path, allow := range map[string]string{"/v1/check": "GET, HEAD, POST", "/v1/lists": "GET, HEAD", "/readyz": "GET, HEAD", "/": "GET, HEAD"} {
		w := f.ask("DELETE", path, "")
		testkit.Equal(t, fmt.Sprintf("Allow of %s", path), w.Header().Get("Allow"), allow)
		wantProblem(t, w, http.StatusMethodNotAllowed, "DELETE")
	}
	w := f.ask("GET", "/v1/check?sender=a", "")
	testkit.Got(w.Header().Get("Cache-Control"), w.Header().Get("X-Content-Type-Options"))(t, "headers", "private, no-cache", "nosniff")
}

func TestHostWithoutToken(t *testing.T) {
	f := newFixture(t, Settings{Hosts: []string{"mail.example"}}, "bad.example\n")
	for host, known := range map[string]bool{"127.0.0.1:8025": true, "127.0.0.1": true, "[::1]:8025": true, "[::1]": true,
		"localhost": true, "LocalHost:8025": true, "mail.example": true, "mail.example:8025": true,
		"evil.example": false, "evil.example:8025": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false} {
		w := f.ask("GET", "/readyz", "", "Host: "+host)
		testkit.Equal(t, fmt.Sprintf("Host %s is known", host), w.Code == http.StatusOK, known)
		if !known {
			wantProblem(t, w, http.StatusMisdirectedRequest, "IP address")
		}
	}
	// With a token every name is good.
	closed := newFixture(t, Settings{Token: "0123456789abcdef"}, "bad.example\n")
	for path, header := range map[string]string{"/readyz": "Authorization: Bearer 0123456789abcdef", "/healthz": "X: "} {
		closed.gives(t, http.StatusOK, "GET", path, "", header, "Host: evil.example")
	}
}

func TestReadToken(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ name, text, want, words string }{
		{"with a line end", "0123456789abcdef\n", "0123456789abcdef", ""},
		{"with a DOS line end", "0123456789abcdef\r\n", "0123456789abcdef", ""},
		{"without", "0123456789abcdef", "0123456789abcdef", ""},
		{"too short", "secret\n", "", "token of 6 octets"},
		{"empty", "", "", "token of 0 octets"},
		{"two lines", "0123456789abcdef\n0123456789abcdef\n", "", "one word"},
		{"blanks", "0123456789abcdef  ", "", "one word"},
		{"the wrong file", strings.Repeat("x", 1<<20), "", "want 16 to 1024"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := testkit.Write(t, filepath.Join(dir, "token"), tt.text)
			got, err := ReadToken(path)
			if got != tt.want || (err == nil) != (tt.words == "") || err != nil && !strings.Contains(err.Error(), tt.words) {
				t.Errorf("ReadToken = %q, %v, want %q, %q", got, err, tt.want, tt.words)
			}
		})
	}
	if _, err := ReadToken(filepath.Join(dir, "none")); err == nil {
		t.Error("no error without a file")
	}
}

// TestListsThatAreAsked: they are not missing although blockd has no copy of them.
func TestListsThatAreAsked(t *testing.T) {
	f := newFixture(t, Settings{Sources: func(reload.Status) map[string]ListSource {
		return map[string]ListSource{"abuse": {Kind: "redis", Mode: "ask", State: "ok", Rows: 7}, "away": {Kind: "postgres", Mode: "ask", State: "away"},
			"unread": {Kind: "postgres", Mode: "copy", State: "away"}}
	}}, "bad.example\n")
	got := decoded[ListTable](t, f.ask("GET", "/v1/lists", ""), http.StatusOK, asJSON)
	states := map[string]ListState{}
	for _, w := range got.Worth {
		states[w.List] = w.State
	}
	want := map[string]ListState{"bad": ListOK, "abuse": ListAsked, "away": ListUnasked, "unread": ListMissing}
	if !reflect.DeepEqual(states, want) {
		t.Errorf("states %v, want %v", states, want)
	}
}

// TestReport: a letter names refused senders, so it is shown to a token that may read, and sent by one that may write.
func TestReport(t *testing.T) {
	f, bear := ownersFixture(t)
	s := f.settings
	var from []time.Duration
	var fails, away error
	sent := 0
	s.Report = &Report{To: "ops@here.example", Every: 24 * time.Hour,
		Make: func(_ context.Context, since, until time.Time) (letter.Letter, error) {
			from = append(from, until.Sub(since).Round(time.Hour))
			l, err := letter.Gather(t.Context(), letter.Sources{Host: "mx1.here.example"}, since, until)
			l.Mail.Refused = 3
			return l, errors.Join(err, fails)
		},
		Send: func(context.Context, *letter.Letter) ([]ReportDelivery, error) {
			sent++
			return []ReportDelivery{{"ops@here.example", true, "250 ok"}}, away
		}}
	f.serve(s)
	read, write := bear(Read), bear(Write)
	for _, tt := range []struct {
		what, method, target string
		headers              []string
		want                 int
	}{
		{"a time that is none", "GET", "/v1/report?since=yesterday", []string{read}, http.StatusBadRequest},
		{"a time to come", "GET", "/v1/report?since=2999-01-01T00:00:00Z", []string{read}, http.StatusBadRequest},
		{"twice", "GET", "/v1/report?since=&since=", []string{read}, http.StatusBadRequest},
		{"a word that it has not", "GET", "/v1/report?to=x@evil.example", []string{read}, http.StatusBadRequest},
	} {
		f.gives(t, tt.want, tt.method, tt.target, "", tt.headers...)
	}
	if len(from) > 0 || sent > 0 {
		t.Errorf("%d letters made and %d sent for who may not", len(from), sent)
	}
	w := f.ask("GET", "/v1/report", "", read)
	var a map[string]any
	testkit.Must(t, json.Unmarshal(w.Body.Bytes(), &a))
	testkit.MustEqual(t, "status", w.Code, http.StatusOK)
	l, _ := a["letter"].(map[string]any)
	for _, name := range []string{"lists", "loads", "requests", "proposed", "pending", "changes", "problems", "notes"} {
		if _, ok := l[name].([]any); !ok {
			t.Errorf("%s is %v, want an array", name, l[name])
		}
	}
	testkit.Got(a["subject"], a["empty"], a["text"].(string))(t, "the report", "blockd on mx1.here.example: 3 refused", false, "…\n3  refused\n…")
	if w := f.ask("POST", "/v1/report?since="+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "", write); w.Code != http.StatusOK ||
		strings.TrimSpace(w.Body.String()) != `{"deliveries":[{"recipient":"ops@here.example","accepted":true,"reply":"250 ok"}]}` {
		t.Errorf("sent: %d %s", w.Code, w.Body)
	}
	testkit.Got(len(from), testkit.At(from, 0), testkit.At(from, 1), sent)(t, fmt.Sprintf("letters about %v", from), 2, 24*time.Hour, time.Hour, 1)
	away = errors.New("smtp.upstream: connection refused")
	wantProblem(t, f.ask("POST", "/v1/report", "", write), http.StatusBadGateway, "connection refused")
	fails = errors.New("no space left on device")
	f.gives(t, http.StatusInternalServerError, "GET", "/v1/report", "", read)
}

// A defect costs the one request, is counted, and told with its stack but without
// what was asked.
func TestDefectCostsOneRequest(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	var text bytes.Buffer
	f.Server.log = slog.New(slog.NewTextHandler(&text, nil))
	var broken atomic.Bool
	f.Server.status = func() reload.Status {
		if broken.Load() {
			panic("a defect")
		}
		return f.status
	}
	l := testkit.Listen(t)
	stop := f.running(t, l)

	ask := func() (status int, err error) {
		a, err := http.Get("http://" + l.Addr().String() + "/v1/lists?entries=0")
		if err != nil {
			return 0, err
		}
		defer a.Body.Close()
		_, err = io.ReadAll(a.Body)
		return a.StatusCode, err
	}
	broken.Store(true)
	if status, err := ask(); err == nil {
		t.Errorf("status %d from a request that panicked", status)
	}
	broken.Store(false)
	testkit.Equal(t, "the next request", testkit.Value(ask())(t), http.StatusOK)
	var counted dto.Metric
	testkit.Must(t, f.panics.Write(&counted))
	testkit.Equal(t, "counted", counted.Counter.GetValue(), 1)
	stop()
	if log := text.String(); strings.Count(log, "http request panicked") != 1 || !strings.Contains(log, "status_test.go") || strings.Contains(log, "entries=0") {
		t.Errorf("log: %s", log)
	}
}

// A change that another process makes in this one's place is not cut off when this one's doors close meanwhile.
func TestChangeElsewhereOutlastsTheDoor(t *testing.T) {
	set := testkit.Value(live.Open(live.Settings{Folder: t.TempDir()}))(t)
	testkit.Must(t, set.Yield())
	ctx, closeDoor := context.WithCancel(t.Context())
	f := newFixture(t, Settings{Entries: set, First: firstFile(t), Successor: func(context.Context) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			closeDoor()
			if r.Context().Err() != nil { // what a reverse proxy heeds
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			io.Copy(w, r.Body)
		})
	}}, "bad.example\n")
	l := testkit.Listen(t)
	ended := make(chan error)
	go func() { ended <- f.Serve(ctx, l) }()
	const body = `{"entries":[{"entry":"x@y.example"}]}`
	ask := testkit.Value(http.NewRequest("POST", "http://"+l.Addr().String()+"/v1/entries", strings.NewReader(body)))(t)
	ask.Header.Set("Authorization", "Bearer "+first)
	ask.Header.Set("Content-Type", "application/json")
	answer := testkit.Value(http.DefaultClient.Do(ask))(t)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	testkit.Got(err, answer.StatusCode, string(text))(t, answer.Status, nil, http.StatusOK, body)
	testkit.Should(t, <-ended)
}
