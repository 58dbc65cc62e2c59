package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/doors/forget"
	"blockd/doors/httpapi/session"
	"blockd/doors/receipt"
	"blockd/index/live"
	"blockd/internal/access"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/records/audit"
	"blockd/records/history"
	"blockd/records/letter"
	"blockd/records/pause"
	"blockd/records/quarantine"
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

// change is a request that changes something, by the route, and the action of its line.
type change struct {
	target, body string
	action       string // "": why says why it has no line
	why          string
}

// changes has a row for each route that a token needs the right to write for, in an order in which they can be made. A new route
// wants a row, and so a line in the journal.
func changes(ref [2]string, waits string) map[string]change {
	return map[string]change{
		"POST /v1/entries":                      {"", `{"entry":"x@y.example","author":"jo","why":"w"}`, audit.EntryAdd, ""},
		"DELETE /v1/entries":                    {"?entry=x@y.example", "", audit.EntryRemove, ""},
		"POST /v1/owners/{owner}/entries":       {"", `{"entry":"x@z.example"}`, audit.EntryAdd, ""},
		"DELETE /v1/owners/{owner}/entries":     {"?entry=x@z.example", "", audit.EntryRemove, ""},
		"DELETE /v1/quarantine":                 {"?id=1700000001.M1.host", "", audit.QuarantineRemove, ""},
		"GET /v1/quarantine/message":            {why: "it reads"},
		"POST /v1/quarantine/release":           {"?id=1700000000.M0.host", "", audit.QuarantineRelease, ""},
		"POST /v1/requests/grant":               {"?ref=" + ref[0], "", audit.RequestGrant, ""},
		"POST /v1/requests/decline":             {"?ref=" + ref[1], "", audit.RequestDecline, ""},
		"POST /v1/lists/{list}/rollback":        {"", `{"to":"aaaaaaaa"}`, audit.ListRollback, ""},
		"POST /v1/lists/{list}/adopt":           {"", `{"if":"` + waits + `"}`, audit.ListAdopt, ""},
		"POST /v1/lists/{list}/pause":           {"", `{"for":"1h"}`, audit.ListPause, ""},
		"POST /v1/lists/{list}/resume":          {"", "", audit.ListResume, ""},
		"POST /v1/correspondents":               {"", `{"sent":[{"sender":"a@here.example","recipient":"b@there.example","time":"2026-01-01T00:00:00Z"}]}`, audit.CorrespondentsAdd, ""},
		"POST /v1/forget":                       {"", `{"address":"b@there.example"}`, audit.PersonForget, ""},
		"DELETE /v1/sessions":                   {"?name=other", "", audit.SessionEnd, ""},
		"POST /v1/tokens":                       {"", `{"name":"third","scope":"read"}`, audit.TokenAdd, ""},
		"DELETE /v1/tokens":                     {"?name=other", "", audit.TokenRevoke, ""},
		"POST /v1/fleet/halt":                   {"", `{"why":"good mail is refused"}`, audit.SnapshotHalt, ""},
		"POST /v1/fleet/again":                  {"", `{"sequence":1}`, audit.SnapshotPublish, ""},
		"POST /v1/report":                       {"", "", audit.ReportSend, ""},
		"POST /v1/subscriptions":                {"", `{"what":"https://lists.example/a"}`, audit.ListAdd, ""},
		"POST /v1/subscriptions/{list}/enforce": {"", "", audit.ListEnforce, ""},
		"DELETE /v1/subscriptions/{list}":       {"?why=w", "", audit.ListRemove, ""},
		"POST /v1/reload":                       {why: "the daemon writes configuration.change when another one is in force"},
		"POST /v1/owners/{owner}/junk":          {why: "package junk adds live entries, which write theirs"},
	}
}

// newChangingFixture has something that each change can change.
func newChangingFixture(t *testing.T) (f *entryFixture, all map[string]change) {
	t.Helper()
	var waits string
	f, _, waits = newUndoFixture(t)
	s, dir := f.settings, t.TempDir()
	s.Audit = newAudit(t)
	guard := testkit.Value(lists.NewGuard(lists.DefaultGuard()))(t)
	s.Entries = testkit.Value(live.Open(live.Settings{Folder: filepath.Join(dir, "live"), Guard: guard, Audit: s.Audit.Log}))(t)
	t.Cleanup(func() { s.Entries.Close() })
	s.Pauses = testkit.Value(pause.Open(filepath.Join(dir, "pauses")))(t)
	s.Person = &forget.Places{Correspondents: newCorrespondents(t), Index: filepath.Join(dir, "index")}
	s.Channel = newTestChannel()
	aside := newAsideFixture(t, 2)
	s.Quarantine = aside.settings.Quarantine
	s.Quarantine.Deliver = func(context.Context, quarantine.Mail) ([]quarantine.Delivery, error) { return nil, nil }
	s.Report = &Report{To: "you@here.example", Every: time.Hour,
		Make: func(context.Context, time.Time, time.Time) (letter.Letter, error) { return letter.Letter{}, nil },
		Send: func(context.Context, *letter.Letter) ([]ReportDelivery, error) { return nil, nil }}
	s.Subscriptions = &Subscriptions{All: func() (all SubscriptionList, _ error) { return all, nil }, Change: func(_ context.Context, c SubscriptionChange, before func(SubscriptionList, string, string) error) (SubscriptionChanged, error) {
		return SubscriptionChanged{List: "far"}, before(SubscriptionList{}, "far", "")
	}}
	s.Reload = func(context.Context, string) (Reloaded, error) { return Reloaded{}, nil }
	key := testkit.Value(receipt.OpenKey(dir))(t)
	s.Requests = receipt.NewStore(dir, key)
	var refs [2]string
	door := &receipt.Server{Key: key, Requests: s.Requests, Log: slog.New(slog.DiscardHandler), Contact: func(string, string) string { return "" },
		Find: func(context.Context, string) (*history.Record, error) {
			return &history.Record{Time: time.Now(), Outcome: "refuse", List: "bad", Sender: "r@there.example", Client: netip.MustParseAddr("192.0.2.7")}, nil
		}}
	door.Register(prometheus.NewRegistry())
	for i := range refs {
		refs[i] = key.NewRef()
		door.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/r/"+refs[i], nil))
	}
	f.status.Files = f.fixture.live.Lists()
	f.write = newToken(t, s.Tokens, "helpdesk-admin", Admin)
	other := newToken(t, s.Tokens, "other", Read)
	sum := sha256.Sum256([]byte(strings.TrimPrefix(other, "Authorization: Bearer ")))
	defer func() { f.sessions.Begin(time.Now(), session.Session{Token: hex.EncodeToString(sum[:])}) }() // no file: it cannot fail
	f.serve(s)
	return f, changes(refs, waits)
}

// TestEveryChangeHasItsLine makes each change that there is over HTTP. It is in the journal, and where that cannot be written it
// is refused.
func TestEveryChangeHasItsLine(t *testing.T) {
	f, all := newChangingFixture(t)
	full, fullAll := newChangingFixture(t)
	if err := os.WriteFile(full.settings.Audit.Folder, nil, 0o600); err != nil { // no folder can be made there
		t.Fatal(err)
	}
	var names []string
	for _, r := range f.routes(http.NotFoundHandler()) {
		for _, m := range r.methods {
			name := m.name + " " + r.path
			switch c, known := all[name]; {
			case m.writes && !known:
				t.Errorf("%s: no line of the journal is wanted for it", name)
			case m.writes && c.why == "":
				names = append(names, name)
			}
		}
	}
	if len(names) < 14 {
		t.Errorf("only %d changes: %q", len(names), names)
	}
	slices.SortFunc(names, func(a, b string) int { // what is removed was added before
		return cmp.Or(strings.Compare(b[:1], a[:1]), strings.Compare(a, b))
	})
	for _, name := range names {
		c := all[name]
		method, path, _ := strings.Cut(name, " ")
		list := "bulk"
		if strings.HasSuffix(path, "pause") || strings.HasSuffix(path, "resume") {
			list = "bad"
		}
		target := strings.NewReplacer("{owner}", "bob@here.example", "{list}", list).Replace(path) + c.target
		before := len(f.lines(t, "?action="+c.action).Lines)
		w := f.ask(method, target, c.body, f.write, "Content-Type: application/json")
		if after := f.lines(t, "?action="+c.action).Lines; w.Code >= 300 || len(after) != before+1 || !strings.Contains(after[0].By, "helpdesk") {
			t.Errorf("%s: %d %s, and %d lines %s after %d: %+v", name, w.Code, w.Body, len(after), c.action, before, after)
		}
		if method == "DELETE" && strings.Contains(path, "entries") || strings.HasSuffix(path, "resume") {
			continue // there is nothing that could be taken back
		}
		c = fullAll[name]
		target, _, _ = strings.Cut(target, "?")
		testkit.Has(t, full.ask(method, target+c.target, c.body, full.write, "Content-Type: application/json").Body.String(), "the audit journal cannot be written")
	}
}

// TestWhoHasChanged: each change says who was authenticated, apart from what he calls himself, by whatever he came:
// nobody signs as another.
func TestWhoHasChanged(t *testing.T) {
	f := newAuditFixture(t)
	f.settings.First = firstFile(t)
	f.serve(f.settings)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skipf("no Unix socket in a folder of this name: %v", err)
	}
	f.running(t, l)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	first := "Authorization: Bearer " + testkit.Value(ReadToken(f.settings.First))(t)
	uid := access.Self().Number()
	for _, c := range []struct{ header, author, by, who string }{
		{f.write, "", "helpdesk", "helpdesk"},
		{f.write, "jo", "jo (helpdesk)", "helpdesk"},
		{f.write, "anna (boss)", "anna (boss) (helpdesk)", "helpdesk"},
		{f.write, "boss (helpdesk)", "boss (helpdesk)", "helpdesk"},
		{first, "", "the token of the daemon", "the token of the daemon"},
		{first, "anna (boss)", "anna (boss) (the token of the daemon)", "the token of the daemon"},
		{first, "boss", "boss (the token of the daemon)", "the token of the daemon"},
		{"", "", access.Self().String() + " (" + uid + ")", uid},
		{"", "anna (boss)", "anna (boss) (" + uid + ")", uid},
	} {
		for _, do := range []string{"pause", "resume"} {
			body := testkit.Value(json.Marshal(map[string]string{"author": c.author}))(t)
			if c.header != "" {
				f.ask("POST", "/v1/lists/bad/"+do, string(body), c.header)
			} else {
				resp := testkit.Value(client.Post("http://localhost/v1/lists/bad/"+do, "application/json", bytes.NewReader(body)))(t)
				resp.Body.Close()
			}
			line := f.lines(t, "?limit=1").Lines[0]
			testkit.Got(line.Action, line.By, line.Who)(t, c.author, "list."+do, c.by, c.who)
		}
	}
	for _, text := range []string{"?by=" + strings.ReplaceAll(uid, " ", "%20"), "?by=boss"} {
		testkit.AtLeast(t, text, len(f.lines(t, text).Lines), 2)
	}
}

// Two people may have one name at an identity provider, or that of a token: the subject says who it was.
func TestWhoAPersonIs(t *testing.T) {
	person := func(subject, name string) string {
		return caller{name: name, known: true, session: &session.Session{Person: &session.Person{Subject: subject, Name: name}}}.author("", nil)
	}
	for subject, name := range map[string]string{"1": "helpdesk", "2": "anna (boss)", "3 (boss)": "anna", "4": "the token of the daemon", "5": "uid 0"} {
		author := person(subject, name)
		testkit.Equal(t, author, audit.WhoOf(author), "person "+strings.NewReplacer("(", "[", ")", "]").Replace(subject))
	}
}
