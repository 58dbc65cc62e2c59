package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"blockd/doors/forget"
	"blockd/doors/httpapi/provider"
	"blockd/doors/receipt"
	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/internal/testkit"
	"blockd/policy/junk"
	"blockd/records/history"
	"blockd/records/pause"
	"blockd/records/rollup"
	"blockd/sources/roster"
)

var update = flag.Bool("update", false, "write docs/openapi.json anew")

// TestDocumentIsInDocs holds the copy for who has no daemon at hand. It has every
// resource that a daemon can have, so that no two of them name a schema alike.
func TestDocumentIsInDocs(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	whole := New(Settings{Tokens: "none", Provider: &Provider{Provider: provider.New(provider.Settings{})}, Entries: new(live.Set), Shared: new(shared.Node), Fleet: &Fleet{Book: roster.NewBook()}, Channel: &Channel{}, Junk: &junk.Desk{Box: new(junk.Box)}, Undo: &Undo{}, Pauses: new(pause.Set), Audit: &Audit{}, Quarantine: &Quarantine{}, Requests: new(receipt.Store), Report: &Report{}, History: new(history.Log), Rollup: rollup.New("", nil), Offer: &Offer{}, Subscriptions: &Subscriptions{}, Replay: func(context.Context, string, time.Time) (Replay, error) { return Replay{}, nil }, Person: new(forget.Places), Events: NewEvents(), Reload: func(context.Context, string) (Reloaded, error) { return Reloaded{}, nil }}, f.checker, f.Server.status, prometheus.NewRegistry(), f.log)
	path := filepath.Join(testkit.Root(t), "docs/openapi.json")
	if *update {
		testkit.Write(t, path, whole.document)
	}
	have := testkit.Read(t, path)
	if !bytes.Equal(have, whole.document) {
		t.Errorf("%s is another document than the daemon's: go test ./httpapi -run Document -update", path)
	}
	testkit.Has(t, string(have), `"openapi": "3.1.0"`, "/v1/check", "/v1/entries", "/v1/lists", "/openapi.json", "application/x-ndjson")
}

func TestDocumentIsServed(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	w := f.ask("GET", "/openapi.json", "")
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != asJSON || !bytes.Equal(w.Body.Bytes(), f.Server.document) {
		t.Errorf("answer is %d %s, %d octets", w.Code, w.Header().Get("Content-Type"), w.Body.Len())
	}
	if strings.Contains(w.Body.String(), "/v1/entries") {
		t.Error("the document has a resource that this server has not")
	}
	testkit.Equal(t, "asked again", f.ask("GET", "/openapi.json", "", "If-None-Match: "+w.Header().Get("ETag")).Code, http.StatusNotModified)
}

// TestAnswersAreAsDocumented holds real answers against the schemas, and against having
// members or statuses that the document does not know.
func TestAnswersAreAsDocumented(t *testing.T) {
	f := newEntryFixture(t)
	f.status.Files, f.status.Generation, f.status.Ready = f.fixture.live.Lists(), f.fixture.live.Generation(), true
	routes := f.routes(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "# metrics\n") }))
	d := describe(routes)
	seen := map[string]bool{}
	admin := newToken(t, f.tokens.path, "boss", Admin)
	jsonBody, stream := "Content-Type: application/json", "Content-Type: application/x-ndjson"
	for _, tt := range []struct {
		method, target, body string
		headers              []string
		want                 int
	}{
		{"GET", "/v1/check?sender=a@bad.example", "", nil, 200},
		{"GET", "/v1/check?sender=a@ok.example&client=192.0.2.1", "", nil, 200},
		{"GET", "/v1/check?sender=a%20b", "", nil, 200},
		{"GET", "/v1/check?explain=1&sender=a@bad.example", "", nil, 200},
		{"GET", "/v1/check?explain=1&domain=bad.example", "", nil, 200},
		{"GET", "/v1/check?explain=1&ip=192.0.2.1", "", nil, 200},
		{"GET", "/v1/check?explain=1&sender=nonsense", "", nil, 200},
		{"GET", "/v1/check?explain=1&ip=100::2", "", nil, 200},
		{"GET", "/v1/check?sender=a@bad.example", "", []string{"If-None-Match: *"}, 304},
		{"GET", "/v1/check", "", nil, 400},
		{"POST", "/v1/check", `{"senders":["a@bad.example",{"sender":"","client":"192.0.2.1"},{"ip":"100::3"},{"domain":"x"},"a@ok.example"]}`, []string{jsonBody}, 200},
		{"POST", "/v1/check?explain=1", `{"senders":["a@bad.example","a@ok.example"]}`, []string{jsonBody}, 200},
		{"POST", "/v1/check/stream", "\"a@bad.example\"\nnonsense\n{\"ip\":\"100::2\"}\n", []string{stream}, 200},
		{"POST", "/v1/check/stream?explain=1", "\"a@bad.example\"\n", []string{stream}, 200},
		{"POST", "/v1/check", `{"senders":1}`, []string{jsonBody}, 400},
		{"POST", "/v1/check", `{"senders":["` + strings.Repeat("x", maxBatch), []string{jsonBody}, 413},
		{"POST", "/v1/check", "", nil, 415},
		{"POST", "/v1/check/text", "a@bad.example\na@ok.example\n", []string{"Content-Type: text/plain"}, 200},
		{"POST", "/v1/check/text", "a@bad.example\n", nil, 415},
		{"POST", "/v1/check/text?file=x", "a@bad.example\n", []string{"Content-Type: text/plain"}, 400},
		{"POST", "/v1/check?file=x", "a@bad.example\n", []string{"Content-Type: text/plain"}, 400},
		{"POST", "/v1/check/message", "", nil, 415},
		{"POST", "/v1/check/stream", "", nil, 415},
		{"GET", "/healthz?x=1", "", nil, 400},
		{"POST", "/v1/entries", `{"entry":"one.example","why":"w","for":"1h"}`, []string{jsonBody}, 200},
		{"POST", "/v1/entries", `{"entries":[{"entry":"one.example"},{"entry":"two.example","action":"allow"}]}`, []string{jsonBody}, 200},
		{"POST", "/v1/entries", `{"entry":"gmail.com"}`, []string{jsonBody}, 409},
		{"POST", "/v1/entries", `{"entry":"*"}`, []string{jsonBody}, 400},
		{"POST", "/v1/entries", `{}`, nil, 415},
		{"GET", "/v1/entries", "", nil, 200},
		{"GET", "/v1/entries", "", []string{"If-None-Match: *"}, 304},
		{"GET", "/v1/entries?q=one&sort=entry&limit=1", "", nil, 200},
		{"GET", "/v1/entries?cursor=x", "", nil, 400},
		{"GET", "/v1/entries.csv", "", nil, 200},
		{"GET", "/v1/entries.ndjson", "", nil, 200},
		{"GET", "/v1/entries.ndjson", "", []string{"If-None-Match: *"}, 304},
		{"DELETE", "/v1/entries?entry=one.example&entry=none.example", "", nil, 200},
		{"DELETE", "/v1/entries", "", nil, 400},
		{"POST", "/v1/owners/anna@here.example/entries", `{"entry":"one.example","why":"w","for":"1h"}`, []string{jsonBody}, 200},
		{"POST", "/v1/owners/anna@here.example/entries", `{"entry":"two.example"}`, []string{jsonBody, `If-Match: "x"`}, 412},
		{"GET", "/v1/owners/anna@here.example/entries", "", nil, 200},
		{"GET", "/v1/entries?owner=here.example", "", nil, 200},
		{"GET", "/v1/owners/a%20b/entries", "", nil, 400},
		{"DELETE", "/v1/owners/anna@here.example/entries?entry=one.example", "", nil, 200},
		{"GET", "/v1/lists", "", nil, 200},
		{"GET", "/v1/lists/bad", "", nil, 200},
		{"GET", "/v1/lists/none", "", nil, 404},
		{"POST", "/v1/lint", "a.example\nnonsense@@\n", nil, 200},
		{"POST", "/v1/lint?format=none", "", nil, 400},
		{"POST", "/v1/lint", strings.Repeat("x", maxLint+1), nil, 413},
		{"GET", "/v1/series", "", nil, 200},
		{"GET", "/v1/series?by=list&span=30d&outcome=refuse&list=bad", "", nil, 200},
		{"GET", "/v1/series?by=door&door=smtp", "", nil, 400},
		{"GET", "/v1/series.csv?span=7d", "", nil, 200},
		{"GET", "/v1/serving", "", nil, 200},
		{"GET", "/v1/session", "", nil, 200},
		{"POST", "/v1/session", `{"token":"` + strings.TrimPrefix(f.write, "Authorization: Bearer ") + `"}`, []string{jsonBody}, 200},
		{"POST", "/v1/session", `{"token":"x"}`, []string{jsonBody}, 401},
		{"POST", "/v1/session", `{}`, nil, 415},
		{"DELETE", "/v1/session", "", nil, 200},
		{"GET", "/v1/sessions", "", []string{admin}, 200},
		{"DELETE", "/v1/sessions?name=nobody", "", []string{admin}, 404},
		{"DELETE", "/v1/sessions", "", []string{admin}, 400},
		{"GET", "/v1/tokens", "", []string{admin}, 200},
		{"GET", "/v1/tokens", "", nil, 403},
		{"POST", "/v1/tokens", `{"name":"made","scope":"read","owners":["ann@here.example"]}`, []string{jsonBody, admin}, 200},
		{"POST", "/v1/tokens", `{"name":"made","scope":"read"}`, []string{jsonBody, admin}, 409},
		{"POST", "/v1/tokens", `{"name":"made","scope":"all"}`, []string{jsonBody, admin}, 400},
		{"DELETE", "/v1/tokens?name=made", "", []string{admin}, 200},
		{"DELETE", "/v1/tokens?name=made", "", []string{admin}, 404},
		{"GET", "/healthz", "", nil, 200},
		{"GET", "/readyz", "", nil, 200},
		{"GET", "/metrics", "", nil, 200},
		{"GET", "/openapi.json", "", nil, 200},
		{"GET", "/", "", nil, 200},
		{"GET", "/v1/lists", "", []string{"Origin: https://evil.example"}, 403},
		{"POST", "/v1/entries", "{}", []string{f.read, jsonBody}, 403},
		{"GET", "/v1/lists", "", []string{"Authorization: Bearer nobody's"}, 401},
	} {
		w := f.ask(tt.method, tt.target, tt.body, append([]string{f.write}, tt.headers...)...)
		where := fmt.Sprintf("%s %.60s -> %d", tt.method, tt.target, w.Code)
		if w.Code != tt.want {
			t.Errorf("%s, want %d: %s", where, tt.want, w.Body)
			continue
		}
		path, _, _ := strings.Cut(tt.target, "?")
		if strings.HasPrefix(path, "/v1/owners/") {
			path = "/v1/owners/{owner}/entries"
		}
		if name, ok := strings.CutPrefix(path, "/v1/lists/"); ok {
			path = strings.Replace(path, name, "{list}", 1)
		}
		d.holds(t, where, operationAt(d.api.Paths[path], tt.method), w)
		seen[tt.method+" "+path] = true
	}
	for _, r := range routes {
		for _, m := range r.methods {
			if !seen[m.name+" "+r.path] {
				t.Errorf("%s %s is documented and not tried here", m.name, r.path)
			}
		}
	}
}

func operationAt(item *huma.PathItem, method string) *huma.Operation {
	return map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "DELETE": item.Delete, "PUT": item.Put, "PATCH": item.Patch}[method]
}

// holds checks one answer.
func (d *document) holds(t *testing.T, where string, op *huma.Operation, w *httptest.ResponseRecorder) {
	t.Helper()
	response := op.Responses[strconv.Itoa(w.Code)]
	if response == nil {
		t.Errorf("%s: the status is not documented", where)
		return
	}
	if name, ok := strings.CutPrefix(response.Ref, "#/components/responses/"); ok {
		response = d.api.Components.Responses[name]
	}
	for name := range response.Headers {
		if w.Header().Get(name) == "" {
			t.Errorf("%s: no header %s", where, name)
		}
	}
	contentType, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
	if len(response.Content) == 0 {
		if w.Body.Len() > 0 {
			t.Errorf("%s: a body, and none is documented", where)
		}
		return
	}
	media := response.Content[contentType]
	if media == nil {
		t.Errorf("%s: %s is not documented", where, contentType)
		return
	}
	switch contentType {
	case "text/plain", "text/csv":
		return
	case asStream:
		for line := range strings.Lines(w.Body.String()) {
			d.valid(t, where, media.Schema, line)
		}
	default:
		d.valid(t, where, media.Schema, w.Body.String())
	}
}

func (d *document) valid(t *testing.T, where string, s *huma.Schema, text string) {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	if fault := d.fault(s, v, "$"); fault != "" {
		t.Errorf("%s: %s in %s", where, fault, text)
	}
}

// fault says what is wrong with v by those words of JSON Schema that the document has,
// and of members that it does not name; "" if nothing is. The library's own validator
// takes null for anything.
func (d *document) fault(s *huma.Schema, v any, at string) string {
	if s.Ref != "" {
		return d.fault(d.schemas.SchemaFromRef(s.Ref), v, at)
	}
	if choices := append(s.OneOf, s.AnyOf...); len(choices) > 0 {
		var faults []string
		for _, choice := range choices {
			fault := d.fault(choice, v, at)
			if fault == "" {
				return ""
			}
			faults = append(faults, fault)
		}
		return strings.Join(faults, "; and ")
	}
	if v == nil && (s.Nullable || s.Type == "null") {
		return ""
	}
	if len(s.Enum) > 0 {
		for _, word := range s.Enum {
			if word == v {
				return ""
			}
		}
		return fmt.Sprintf("%s: %v is none of %v", at, v, s.Enum)
	}
	switch v := v.(type) {
	case map[string]any:
		if s.Type != huma.TypeObject {
			break
		}
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				return at + ": no member " + name
			}
		}
		for name := range maps.Keys(v) {
			if s.Properties == nil {
				return "" // any object
			}
			if s.Properties[name] == nil {
				return at + ": member " + name + " is not documented"
			}
			if fault := d.fault(s.Properties[name], v[name], at+"."+name); fault != "" {
				return fault
			}
		}
		return ""
	case []any:
		if s.Type != huma.TypeArray {
			break
		}
		for i, one := range v {
			if fault := d.fault(s.Items, one, fmt.Sprintf("%s[%d]", at, i)); fault != "" {
				return fault
			}
		}
		return ""
	case string:
		if s.Type == huma.TypeString {
			return ""
		}
	case bool:
		if s.Type == huma.TypeBoolean {
			return ""
		}
	case float64:
		if s.Type == huma.TypeNumber || s.Type == huma.TypeInteger && v == float64(int64(v)) {
			if s.Minimum != nil && v < *s.Minimum {
				return fmt.Sprintf("%s: %v is below %v", at, v, *s.Minimum)
			}
			return ""
		}
	}
	return fmt.Sprintf("%s: %v is no %s", at, v, s.Type)
}

// TestEveryOperationIsExact walks the document: a parameter that an operation does not have is refused, other methods are 405, and a
// body that is too long 413, each as the document says.
func TestEveryOperationIsExact(t *testing.T) {
	f := newEntryFixture(t)
	admin := newToken(t, f.tokens.path, "boss", Admin)
	d := describe(f.routes(http.NotFoundHandler()))
	path := strings.NewReplacer("{list}", "bad", "{owner}", "anna@here.example")
	for _, r := range f.routes(http.NotFoundHandler()) {
		for _, m := range r.methods {
			op := operationAt(d.api.Paths[r.path], m.name)
			where, target := m.name+" "+r.path, path.Replace(r.path)
			headers := []string{admin}
			if op.RequestBody != nil {
				headers = append(headers, "Content-Type: "+slices.Min(slices.Collect(maps.Keys(op.RequestBody.Content))))
			}
			w := f.ask(m.name, target+"?no_such=1", "", headers...)
			testkit.Got(w.Code, w.Body.String())(t, fmt.Sprintf("%s with another parameter", where), http.StatusBadRequest, "…no_such: no such parameter…")
			d.holds(t, where, op, w)
			if op.Responses["405"] == nil {
				t.Errorf("%s: 405 is not documented", where)
			}
			if !m.open && op.Responses["429"] == nil {
				t.Errorf("%s: 429 is not documented", where)
			}
			if strings.Contains(r.path, "{") && op.Responses["404"] == nil {
				t.Errorf("%s: 404 is not documented", where)
			}
			if op.RequestBody != nil && r.path != "/v1/check/stream" && r.path != "/v1/check/message" { // a stream has no bound, and no message is explained here
				w := f.ask(m.name, target, strings.Repeat(" ", maxBatch+1), headers...)
				if d.holds(t, where, op, w); w.Code != http.StatusRequestEntityTooLarge {
					t.Errorf("%s with a body of %d octets: %d %s", where, maxBatch+1, w.Code, w.Body)
				}
			}
		}
		for _, other := range []string{"GET", "POST", "DELETE", "PUT", "PATCH"} {
			if slices.ContainsFunc(r.methods, func(have method) bool { return have.name == other }) {
				continue
			}
			if w := f.ask(other, path.Replace(r.path), "", admin); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" || operationAt(d.api.Paths[r.path], other) != nil {
				t.Errorf("%s %s: %d, and it is documented: %v", other, r.path, w.Code, operationAt(d.api.Paths[r.path], other) != nil)
			}
		}
	}
}

// TestExplainIsZeroOrOne: 0 is no explanation, and other words are refused.
func TestExplainIsZeroOrOne(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	without := f.ask("GET", "/v1/check?sender=a@bad.example", "").Body.String()
	w := f.ask("GET", "/v1/check?sender=a@bad.example&explain=0", "")
	testkit.Got(w.Code, w.Body.String())(t, "explain=0", http.StatusOK, without)
	for _, bad := range []string{"explain=2", "explain=", "explain=true", "explain=1&explain=1"} {
		wantProblem(t, f.ask("GET", "/v1/check?sender=a@bad.example&"+bad, ""), http.StatusBadRequest, "explain: want 0 or 1")
		wantProblem(t, f.ask("POST", "/v1/check?"+bad, `{"senders":[]}`, "Content-Type: application/json"), http.StatusBadRequest, "explain: want 0 or 1")
	}
	wantProblem(t, f.ask("POST", "/v1/check?whole=2", "a", "Content-Type: text/plain"), http.StatusBadRequest, "whole: want 0 or 1")
}

// TestLongHeaderIsAnswered: whoever sends more than is read hears why, by each way to the door, and no reset in its
// place.
func TestLongHeaderIsAnswered(t *testing.T) {
	for _, tt := range []struct {
		network, path string
		fast          bool
	}{{"tcp", "/healthz", false}, {"tcp", "/v1/check?sender=a@bad.example", true}, {"unix", "/healthz", false}, {"unix", "/v1/check?sender=a@bad.example", true}} {
		f := newFixture(t, Settings{Fast: tt.fast}, "bad.example\n")
		address := "127.0.0.1:0"
		if tt.network == "unix" {
			address = filepath.Join(t.TempDir(), "s")
		}
		l := testkit.Value(net.Listen(tt.network, address))(t)
		go f.Serve(t.Context(), l)
		conn := testkit.Value(net.Dial(tt.network, l.Addr().String()))(t)
		defer conn.Close()
		go io.WriteString(conn, "GET "+tt.path+" HTTP/1.1\r\nHost: localhost\r\nX-a: "+strings.Repeat("x", 4<<20)+"\r\n\r\n")
		answer, err := io.ReadAll(conn)
		testkit.Begins(t, tt.network+" "+tt.path, string(answer), "HTTP/1.1 431 ")
		testkit.IsError(t, tt.network+" "+tt.path+" ends with", err, nil)
	}
}

// TestHeaderLimit: 16 KB is what the documentation says, for a check on the fast path as for anything else.
func TestHeaderLimit(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	for _, path := range []string{"/healthz", "/v1/check?sender=a@bad.example"} {
		for _, tt := range []struct {
			size int
			want string
		}{{maxHeader - 100, "HTTP/1.1 200 "}, {maxHeader + 100, "HTTP/1.1 431 "}} {
			f.inBubble(t, func(p *testkit.Pipes) {
				conn := p.Dial("192.0.2.1")
				defer conn.Close()
				head := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nX-a: "
				go io.WriteString(conn, head+strings.Repeat("x", tt.size-len(head)-4)+"\r\n\r\n")
				testkit.Got(bufio.NewReader(conn).ReadString('\n'))(t, fmt.Sprintf("%s with a header of %d octets", path, tt.size), tt.want+"…", "…")
			})
		}
	}
}
