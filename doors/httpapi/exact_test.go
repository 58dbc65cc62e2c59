package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// TestEveryOperationIsExact walks the document: a parameter that an operation does not have is refused, other methods are 405, and a
// body that is too long 413, each as the document says.
func TestEveryOperationIsExact(t *testing.T) {
	f := newEntryFixture(t)
	admin := newToken(t, f.tokens.path, "boss", Admin)
	d := describe(f.routes(http.NotFoundHandler()))
	path := strings.NewReplacer("{list}", "bad", "{owner}", "anna@here.example")
	for _, r := range f.routes(http.NotFoundHandler()) {
		for _, m := range r.methods {
			op := operation(d.api.Paths[r.path], m.name)
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
			if w := f.ask(other, path.Replace(r.path), "", admin); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" || operation(d.api.Paths[r.path], other) != nil {
				t.Errorf("%s %s: %d, and it is documented: %v", other, r.path, w.Code, operation(d.api.Paths[r.path], other) != nil)
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
