package httpapi

import (
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/verdict"
	"blockd/records/history"
	"blockd/records/rollup"
	"blockd/reload"
)

// entryFixture is a Server with live entries and a token of each scope.
type entryFixture struct {
	*fixture
	set         *live.Set
	read, write string // header lines
	charts      *rollup.Table
}

func newEntryFixture(t testing.TB) *entryFixture {
	t.Helper()
	guard := testkit.Value(lists.NewGuard(lists.DefaultGuard()))(t)
	set := testkit.Value(live.Open(live.Settings{Folder: filepath.Join(t.TempDir(), "live"), Guard: guard}))(t)
	t.Cleanup(func() { set.Close() })
	path := filepath.Join(t.TempDir(), "tokens")
	f := &entryFixture{fixture: &fixture{live: build(t, "bad.example\n")}, set: set}
	f.charts = rollup.New("", nil)
	f.charts.Add(&history.Record{Door: "smtp", Outcome: "refuse", List: "bad"})
	f.read, f.write = newToken(t, path, "viewer", Read), newToken(t, path, "helpdesk", Write)
	reg, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	checker := policy.New(func() *index.Index { return f.fixture.live }, policy.Settings{Live: set}, log, reg)
	f.Server = New(Settings{Tokens: path, Entries: set, Rollup: f.charts}, checker, func() reload.Status { return f.status }, reg, log)
	return f
}

// newToken makes a token, as a header line.
func newToken(t testing.TB, path, name string, scope Scope) string {
	t.Helper()
	token := testkit.Value(NewToken(path, name, scope, nil, ""))(t)
	return "Authorization: Bearer " + token
}

func (f *entryFixture) post(body string) (status int, results []ChangeResult, text string) {
	w := f.ask("POST", "/v1/entries", body, f.write, "Content-Type: application/json")
	var answer ChangeResults
	text = w.Body.String()
	json.Unmarshal(w.Body.Bytes(), &answer)
	return w.Code, answer.Results, text
}

func (f *entryFixture) verdict(t *testing.T, sender string) string {
	t.Helper()
	a := decoded[verdict.Answer](t, f.ask("GET", "/v1/check?sender="+sender, "", f.read), http.StatusOK, asJSON)
	text := string(a.Verdict)
	for _, m := range a.Matches {
		text += " " + m.List
	}
	return text
}

// What is added over HTTP acts on the very next question, and so does its removal.
func TestAddAndRemoveOverHTTP(t *testing.T) {
	f := newEntryFixture(t)
	testkit.MustEqual(t, "before", f.verdict(t, "x@y.example"), "clear")
	status, results, text := f.post(`{"entry":"Y.example","why":"phishing","for":"30d","author":"jo"}`)
	if status != http.StatusOK || len(results) != 1 || results[0].Result != "added" || results[0].Was != nil {
		t.Fatalf("%d %s", status, text)
	}
	e := results[0].Entry
	testkit.Got(e.Entry, e.Author, e.Action, e.Why, e.Scope, time.Until(*e.Expires).Round(time.Hour))(t, "entry", "y.example", "jo (helpdesk)", "block", "phishing", "tree", 30*24*time.Hour)
	testkit.Equal(t, "after the add", f.verdict(t, "x@mx.y.example"), "blocked live")
	list := decoded[EntryList](t, f.ask("GET", "/v1/entries", "", f.read), http.StatusOK, asJSON)
	testkit.Got(len(list.Entries), testkit.At(list.Entries, 0).Entry)(t, fmt.Sprintf("list %+v", list), 1, "y.example")
	w := f.ask("DELETE", "/v1/entries?entry=Y.EXAMPLE&entry=none%2Bsuch@x.example", "", f.write)
	removed := decoded[ChangeResults](t, w, http.StatusOK, asJSON).Results
	if len(removed) != 2 || removed[0].Result != "removed" || removed[0].Was.Why != "phishing" || removed[1].Result != "absent" {
		t.Errorf("removed %+v", removed)
	}
	testkit.Equal(t, "after the removal", f.verdict(t, "x@y.example"), "clear")

	// What was answered undoes it.
	undo := testkit.Value(json.Marshal(removed[0].Was))(t)
	if status, again, text := f.post(string(undo)); status != http.StatusOK || again[0].Result != "added" ||
		again[0].Entry.Author != "jo (helpdesk)" || !again[0].Entry.Expires.Equal(*e.Expires) {
		t.Errorf("undone: %d %s", status, text)
	}
	if _, again, text := f.post(string(undo)); again[0].Result != "unchanged" {
		t.Errorf("the same again: %s", text)
	}
}

// An allow entry goes before the block of any list, and a live block stands beside it.
func TestALiveEntryAmongLists(t *testing.T) {
	f := newEntryFixture(t)
	testkit.MustEqual(t, "before", f.verdict(t, "x@bad.example"), "blocked bad")
	f.post(`{"entry":"bad.example","action":"allow"}`)
	testkit.Equal(t, "with an allow", f.verdict(t, "x@bad.example"), "allowed live bad")
	f.post(`{"entries":[{"entry":"bad.example","action":"block"},{"entry":"x@bad.example"}]}`)
	testkit.Equal(t, "with two blocks", f.verdict(t, "x@bad.example"), "blocked live live bad")
	w := f.ask("POST", "/v1/check", `{"senders":["x@bad.example","y@other.example"]}`, f.read, "Content-Type: application/json")
	batch := decoded[results](t, w, http.StatusOK, asJSON).Results
	if len(batch) != 2 || batch[0].Verdict != verdict.Blocked || batch[0].Matches[0].List != live.ListName || batch[1].Verdict != verdict.Clear {
		t.Errorf("batch %+v", batch)
	}
}

func TestChangesThatAreRefused(t *testing.T) {
	f := newEntryFixture(t)
	for _, tt := range []struct {
		name, body string
		status     int
		words      string
	}{
		{"a provider", `{"entry":"gmail.com"}`, http.StatusConflict, `protected domain gmail.com as a whole; if that is meant, say "force": true`},
		{"a public suffix", `{"entry":"co.uk"}`, http.StatusConflict, "public-suffix"},
		{"no entry", `{"why":"x"}`, http.StatusBadRequest, "want an entry"},
		{"no sender", `{"entry":"a b"}`, http.StatusBadRequest, "more than one word"},
		{"a pattern", `{"entry":"*spam*@x.example"}`, http.StatusBadRequest, "unsupported"},
		{"an action that is none", `{"entry":"x.example","action":"discard"}`, http.StatusBadRequest, `want "block" or "allow"`},
		{"a member that is none", `{"entry":"x.example","fro":"1d"}`, http.StatusBadRequest, "fro"},
		{"two ends", `{"entry":"x.example","for":"1d","expires":"2099-01-01T00:00:00Z"}`, http.StatusBadRequest, "not both"},
		{"an end that is past", `{"entry":"x.example","expires":"2001-01-01T00:00:00Z"}`, http.StatusBadRequest, "a time to come"},
		{"no time", `{"entry":"x.example","for":"soon"}`, http.StatusBadRequest, `such as "30d"`},
		{"a negative time", `{"entry":"x.example","for":"-1h"}`, http.StatusBadRequest, `such as "30d"`},
		{"two lines", `{"entry":"x.example","why":"a\nb"}`, http.StatusBadRequest, "not one line"},
		{"no JSON", `entry=x.example`, http.StatusBadRequest, "not the JSON"},
		{"none", `{"entries":[]}`, http.StatusBadRequest, "want 1 to 1000"},
		{"null", `{"entries":[null]}`, http.StatusBadRequest, "want an entry"},
		{"too many", `{"entries":[` + strings.Repeat(`{},`, 1000) + `{}]}`, http.StatusBadRequest, "want 1 to 1000"},
		{"one bad among good ones", `{"entries":[{"entry":"x.example"},{"entry":"com"}]}`, http.StatusConflict, "public-suffix"},
		{"too long", `{"entry":"` + strings.Repeat("x", maxBatch) + `"}`, http.StatusRequestEntityTooLarge, "octets"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantProblem(t, f.ask("POST", "/v1/entries", tt.body, f.write, "Content-Type: application/json"), tt.status, tt.words)
		})
	}
	wantProblem(t, f.ask("POST", "/v1/entries", `{"entry":"x.example"}`, f.write, "Content-Type: text/plain"), http.StatusUnsupportedMediaType, "application/json")
	wantProblem(t, f.ask("DELETE", "/v1/entries", "", f.write), http.StatusBadRequest, "want 1 to 1000 parameters")
	testkit.Equal(t, "entries", f.set.Len(), 0)
	if status, results, _ := f.post(`{"entry":"gmail.com","force":true}`); status != http.StatusOK || !results[0].Entry.Force {
		t.Errorf("by force: %d", status)
	}
}

// A file that cannot be written changes nothing and is no secret.
func TestEntriesThatCannotBeWritten(t *testing.T) {
	f := newEntryFixture(t)
	f.set.Close()
	wantProblem(t, f.ask("POST", "/v1/entries", `{"entry":"x.example"}`, f.write, "Content-Type: application/json"), http.StatusInsufficientStorage, "cannot be written")
	testkit.Equal(t, "verdict", f.verdict(t, "a@x.example"), "clear")
}

func TestNoEntriesNoResource(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	wantProblem(t, f.ask("GET", "/v1/entries", ""), http.StatusNotFound, "no such resource")
	e := newEntryFixture(t)
	w := e.ask("PUT", "/v1/entries", "", e.write)
	allow := w.Header().Get("Allow")
	testkit.Got(w.Code, allow)(t, "PUT", http.StatusMethodNotAllowed, "GET, HEAD, POST, DELETE")
}

// pieces is a ResponseWriter that counts.
type pieces struct {
	header          http.Header
	octets, largest int
}

func (p *pieces) Header() http.Header { return p.header }
func (p *pieces) WriteHeader(int)     {}
func (p *pieces) Write(b []byte) (int, error) {
	p.octets, p.largest = p.octets+len(b), max(p.largest, len(b))
	return len(b), nil
}

// The text of a million entries is never in memory as a whole.
func TestEntriesAreWrittenInPieces(t *testing.T) {
	f := newEntryFixture(t)
	for i := range 5 {
		changes := make([]live.Change, 1000)
		for j := range changes {
			changes[j] = live.Change{Entry: fmt.Sprintf("a%d@b%d.example", j, i), Why: "phishing, ticket 4711"}
		}
		testkit.Value(f.set.Apply(changes...))(t)
	}
	for _, when := range []string{"of the journal", "of the snapshot"} {
		r := httptest.NewRequest(http.MethodGet, "/v1/entries", nil)
		name, value, _ := strings.Cut(f.read, ": ")
		r.Header.Set(name, value)
		w := &pieces{header: http.Header{}}
		f.Handler().ServeHTTP(w, r)
		if w.octets < 500_000 || w.largest > 64<<10 {
			t.Errorf("%s: %d octets, at most %d at once", when, w.octets, w.largest)
		}
		testkit.Must(t, f.set.Tidy())
	}
	first := f.ask("GET", "/v1/entries", "", f.read)
	tag := first.Header().Get("Etag")
	f.gives(t, http.StatusNotModified, "GET", "/v1/entries", "", f.read, "If-None-Match: "+tag)
	testkit.MustGot(f.post(`{"entry":"newer.example"}`))(t, "given", http.StatusOK, "…", "…")
	list := decoded[EntryList](t, f.ask("GET", "/v1/entries", "", f.read, "If-None-Match: "+tag), http.StatusOK, asJSON)
	if len(list.Entries) != 5001 || list.Entries[0].Entry != "newer.example" || list.Entries[5000].Entry != "a0@b0.example" {
		t.Errorf("after a change: %d entries, the newest %+v", len(list.Entries), list.Entries[0])
	}
}

// A program that must not overwrite what others have changed says which state it knows.
func TestIfRev(t *testing.T) {
	f := newEntryFixture(t)
	post := func(body string, want int) string {
		t.Helper()
		w := f.ask("POST", "/v1/entries", body, f.write, "Content-Type: application/json")
		testkit.MustEqual(t, fmt.Sprintf("%s: %s", body, w.Body), w.Code, want)
		return w.Body.String()
	}
	var answer ChangeResults
	testkit.Must(t, json.Unmarshal([]byte(post(`{"entry":"one.example","why":"first","if_rev":0}`, 200)), &answer))
	rev := answer.Results[0].Entry.Rev
	if text := post(`{"entry":"one.example","why":"again","if_rev":0}`, 409); rev == 0 || !strings.Contains(text, `"was":{"entry":"one.example"`) {
		t.Errorf("there was to be none: %s", text)
	}
	post(fmt.Sprintf(`{"entry":"one.example","why":"second","if_rev":%d}`, rev), 200)
	testkit.Has(t, post(fmt.Sprintf(`{"entries":[{"entry":"two.example"},{"entry":"one.example","if_rev":%d}]}`, rev), 409), "second")
	for _, tt := range []struct {
		query string
		want  int
	}{{fmt.Sprintf("entry=one.example&if_rev=%d", rev), 409}, {"entry=one.example&if_rev=x", 400}, {"entry=one.example&entry=b.example&if_rev=1", 400}, {fmt.Sprintf("entry=one.example&if_rev=%d", rev+1), 200}} {
		f.gives(t, tt.want, "DELETE", "/v1/entries?"+tt.query, "", f.write)
	}
	testkit.Got(f.set.InForce())(t, "entries in force", 0, "…")
	testkit.Has(t, post(`{"entry":"one.example","why":"x","if_rev":7}`, 409), `"was":null`)
}

// A refusal of the gate says what the resource that was asked understands.
func TestHowToForce(t *testing.T) {
	for path, want := range map[string]string{"/v1/entries": `say "force": true`, "/v1/owners/a@b.example/entries": `say "force": true`, "/v1/owners/a@b.example/junk": "say force=1",
		"/v1/proposals/adopt": "say force=1", "/v1/requests/grant": `add the entry by /v1/entries with "force": true`} {
		testkit.Equal(t, path, howToForce(path), want)
	}
}

// fillEntries adds entries e0.example to eN.example, in one batch.
func fillEntries(t *testing.T, set *live.Set, n int) {
	t.Helper()
	changes := make([]live.Change, n)
	for i := range changes {
		changes[i] = live.Change{Entry: fmt.Sprintf("e%d.example", i), Why: "TICKET " + fmt.Sprint(i%10), Author: "jo"}
	}
	testkit.Value(set.Apply(changes...))(t)
}

func TestEntryPages(t *testing.T) {
	f := newEntryFixture(t)
	fillEntries(t, f.set, 250)
	seen, pages := []string{}, 0
	for target := "/v1/entries?limit=100"; target != ""; pages++ {
		l := decoded[EntryList](t, f.ask("GET", target, "", f.read), http.StatusOK, asJSON)
		for _, e := range l.Entries {
			seen = append(seen, e.Entry)
		}
		testkit.Equal(t, fmt.Sprintf("page %d: total", pages), l.Total, 250)
		if target = ""; l.Next != "" {
			target = "/v1/entries?limit=100&cursor=" + url.QueryEscape(l.Next)
		}
	}
	if pages != 3 || len(seen) != 250 || seen[0] != "e249.example" || seen[249] != "e0.example" {
		t.Errorf("%d pages, %d entries, from %s to %s", pages, len(seen), seen[0], seen[len(seen)-1])
	}
	if l := decoded[EntryList](t, f.ask("GET", "/v1/entries", "", f.read), http.StatusOK, asJSON); len(l.Entries) != 250 || l.Next != "" {
		t.Errorf("without a parameter: %d entries, next %q", len(l.Entries), l.Next)
	}
	if l := decoded[EntryList](t, f.ask("GET", "/v1/entries?q=ticket%207&sort=entry&limit=2", "", f.read), http.StatusOK, asJSON); l.Entries[0].Entry != "e107.example" || l.Entries[1].Entry != "e117.example" || l.Next == "" {
		t.Errorf("a search: %s, %s, %q", l.Entries[0].Entry, l.Entries[1].Entry, l.Next)
	}
	if l := decoded[EntryList](t, f.ask("GET", "/v1/entries?q=nothing", "", f.read), http.StatusOK, asJSON); l.Entries == nil || len(l.Entries) != 0 {
		t.Errorf("nothing found: %+v", l.Entries)
	}
	for query, words := range map[string]string{
		"sort=size":                      `sort: want newest, oldest, entry or expires, have "size"`,
		"limit=0":                        "limit: want 1 to 1000",
		"limit=1001":                     "limit: want 1 to 1000",
		"limit=ten":                      "limit: want 1 to 1000",
		"cursor=x":                       `cursor: no such cursor: "x"`,
		"cursor=n1&sort=entry":           "cursor: no such cursor",
		"q=a&q=b":                        "q: want it once",
		"colour=red":                     "colour: no such parameter; there are q, sort, owner, cursor, limit",
		"q=%ff":                          "not UTF-8",
		"q=" + strings.Repeat("x", 1001): "q: over 1000 octets",
	} {
		w := f.ask("GET", "/v1/entries?"+query, "", f.read)
		testkit.Equal(t, fmt.Sprintf("%.20s: a fault has a tag", query), w.Header().Get("ETag"), "")
		wantProblem(t, w, http.StatusBadRequest, words)
	}
}

func TestAnswersInGzip(t *testing.T) {
	f := newEntryFixture(t)
	fillEntries(t, f.set, 100)
	plain := f.ask("GET", "/v1/entries?limit=100", "", f.read)
	for accept, zipped := range map[string]bool{"gzip": true, "deflate, gzip;q=0.5": true, "*": true, "gzip;q=0": false, "br": false, "": false} {
		w := f.ask("GET", "/v1/entries?limit=100", "", f.read, "Accept-Encoding: "+accept)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != zipped || !strings.Contains(w.Header().Get("Vary"), "Accept-Encoding") {
			t.Errorf("%q: gzip %v, Vary %q", accept, got, w.Header().Get("Vary"))
		}
		body := w.Body.String()
		if zipped {
			z := testkit.Value(gzip.NewReader(w.Body))(t)
			text, err := io.ReadAll(z)
			if err != nil || len(body) > plain.Body.Len()/3 {
				t.Errorf("%d octets of %d: %v", len(body), plain.Body.Len(), err)
			}
			body = string(text)
		}
		testkit.Equal(t, fmt.Sprintf("%q: another answer", accept), body, plain.Body.String())
		if again := f.ask("GET", "/v1/entries?limit=100", "", f.read, "Accept-Encoding: "+accept, "If-None-Match: "+w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%q: asked again: %d", accept, again.Code)
		}
	}
	testkit.Equal(t, "the encoding of a short answer", f.ask("GET", "/v1/entries?limit=1", "", f.read, "Accept-Encoding: gzip").Header().Get("Content-Encoding"), "")
	wantProblem(t, f.ask("GET", "/v1/entries?limit="+strings.Repeat("9", 3000), "", f.read, "Accept-Encoding: gzip"), http.StatusBadRequest, "limit")
}

func TestEntryExports(t *testing.T) {
	f := newEntryFixture(t)
	fillEntries(t, f.set, 30)
	f.post(`{"entry":"=one.example","action":"allow","why":"-1, \"quoted\"","for":"1h"}`)
	w := f.ask("GET", "/v1/entries.csv", "", f.read)
	testkit.MustGot(w.Code, w.Header().Get("Content-Type"), w.Header().Get("Content-Disposition"))(t, "the answer", http.StatusOK, "text/csv; charset=utf-8", `attachment; filename="entries.csv"`)
	rows, err := csv.NewReader(w.Body).ReadAll()
	testkit.MustGot(err, len(rows), strings.Join(testkit.At(rows, 0), ","))(t, "rows", nil, 32, "entry,action,why,author,expires,added,number")
	if got := rows[1]; got[0] != "'=one.example" || got[1] != "allow" || got[2] != `'-1, "quoted"` || got[4] == "" || got[6] != "31" {
		t.Errorf("the first row is %q", got)
	}
	w = f.ask("GET", "/v1/entries.ndjson?q=ticket%203", "", f.read)
	lines := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
	var e LiveEntry
	testkit.Must(t, json.Unmarshal([]byte(lines[0]), &e))
	testkit.Got(len(lines), e.Entry, w.Header().Get("Content-Type"))(t, "lines", 3, "e23.example", asStream)
	for _, target := range []string{"/v1/entries.csv", "/v1/entries.ndjson"} {
		f.gives(t, http.StatusUnauthorized, "GET", target, "")
		wantProblem(t, f.ask("GET", target+"?limit=1", "", f.read), http.StatusBadRequest, "limit: no such parameter; there are q")
	}
}

func TestDecisionPagesAndExports(t *testing.T) {
	past := newHistory(t)
	const many = 2500
	for i := range many {
		past.Add(refusal(time.Now(), fmt.Sprintf("=s%d@bad.example", i)))
	}
	f := newFixture(t, Settings{History: past, First: firstFile(t)}, "bad.example\n")
	seen := map[string]bool{}
	for target := "/v1/decisions?limit=1000"; target != ""; {
		l := decoded[DecisionList](t, f.ask("GET", target, "", bearFirst), http.StatusOK, asJSON)
		for _, d := range l.Decisions {
			seen[d.Sender] = true
		}
		testkit.Equal(t, fmt.Sprintf("more, with next %q", l.Next), l.More, l.Next != "")
		if target = ""; l.Next != "" {
			target = "/v1/decisions?limit=1000&cursor=" + l.Next
		}
	}
	testkit.Equal(t, "a walk saw", len(seen), many)
	found := f.ask("GET", "/v1/decisions?q=S2499@BAD", "", bearFirst)
	testkit.Equal(t, "found", len(decoded[DecisionList](t, found, http.StatusOK, asJSON).Decisions), 1)
	testkit.Equal(t, "asked again", f.ask("GET", "/v1/decisions?q=S2499@BAD", "", bearFirst, "If-None-Match: "+found.Header().Get("ETag")).Code, http.StatusNotModified)
	testkit.Equal(t, "the oldest", decoded[DecisionList](t, f.ask("GET", "/v1/decisions?sort=oldest&limit=1", "", bearFirst), http.StatusOK, asJSON).Decisions[0].Sender, "=s0@bad.example")
	rows, err := csv.NewReader(f.ask("GET", "/v1/decisions.csv?list=bad", "", bearFirst).Body).ReadAll()
	if err != nil || len(rows) != 1+many || rows[0][6] != "sender" || rows[1][6] != "'=s2499@bad.example" {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	testkit.Equal(t, "lines", strings.Count(f.ask("GET", "/v1/decisions.ndjson", "", bearFirst).Body.String(), "\n"), many)
	wantProblem(t, f.ask("GET", "/v1/decisions?cursor=o1&sort=newest", "", bearFirst), http.StatusBadRequest, "cursor: no such cursor")
	wantProblem(t, f.ask("GET", "/v1/decisions.csv?colour=red", "", bearFirst), http.StatusBadRequest, "colour: no such parameter")
}
