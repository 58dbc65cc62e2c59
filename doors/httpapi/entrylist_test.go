package httpapi

import (
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"blockd/index/live"
	"blockd/internal/testkit"
)

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
	f := newFixture(t, Settings{History: past, First: first}, "bad.example\n")
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
