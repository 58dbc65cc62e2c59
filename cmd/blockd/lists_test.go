package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/doors/export"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/internal/testkit"
)

const listingLists = `
[[list]]
name = "small"
path = "lists/small.txt"
format = "plain"
[[list]]
name = "big"
path = "lists/big*.txt"
format = "plain"
mode = "shadow"
max_age = "30d"
[[list]]
name = "friends"
path = "lists/friends.txt"
format = "plain"
action = "allow"
[[list]]
name = "later"
path = "lists/later-*.txt"
optional = true
`

// listingDir has a configuration whose HTTP door is at the address.
func listingDir(t *testing.T, address string) (dir, config string) {
	t.Helper()
	dir = t.TempDir()
	head, _, _ := strings.Cut(anyPorts, "[[list]]")
	http := "[http]\nlisten = \"127.0.0.1:0\""
	testkit.Has(t, head, http)
	config = strings.Replace(head, http, "[http]\ntoken_file = \"token\"\nlisten = \""+address+"\"", 1) + listingLists
	writeFile(t, dir, "token", "0123456789abcdef\n")
	writeFile(t, dir, "config.toml", config)
	writeFile(t, dir, "lists/small.txt", "one.example\ntwo.example\n")
	writeFile(t, dir, "lists/big1.txt", "one.example\ntwo.example\nthree.example\nfour.example\n")
	writeFile(t, dir, "lists/big2.txt", "one.example\n=one.example\nfive.example\n")
	writeFile(t, dir, "lists/friends.txt", "boss@one.example\n")
	old := time.Now().Add(-40 * 24 * time.Hour)
	testkit.Must(t, os.Chtimes(filepath.Join(dir, "lists/big2.txt"), old, old))
	return dir, config
}

// rowOf is the line of a table that begins with the word, its columns one blank
// apart.
func rowOf(t *testing.T, table, word string) string {
	t.Helper()
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == word {
			return strings.Join(fields, " ")
		}
	}
	t.Fatalf("no row %s in\n%s", word, table)
	return ""
}

// TestListsOfADaemon asks the daemon that runs.
func TestListsOfADaemon(t *testing.T) {
	dir, config := listingDir(t, "127.0.0.1:0")
	d := serveIn(t, dir, "http")
	ask := writeFile(t, dir, "ask.toml", strings.Replace(config, "token\"\nlisten = \"127.0.0.1:0", "token\"\nlisten = \""+strings.TrimPrefix(d.http, "http://"), 1))
	auth := []string{"Authorization", "Bearer 0123456789abcdef"}
	testkit.Got(d.get(t, "/v1/lists"))(t, "without the token", http.StatusUnauthorized, "…")
	d.get(t, "/v1/check?sender=x@three.example", auth...)
	d.get(t, "/v1/check?sender=boss@one.example", auth...)

	code, out, errs := blockd(t, "", "lists", "-c", ask)
	testkit.MustGot(code, errs)(t, "code", 0, "")
	for word, want := range map[string]string{
		"small":   "small block 2 2 0 0% 100% big ",
		"big":     "big shadow 7 5 3 60% 40% small 40d stale 2 1 ",
		"friends": "friends allow 1 1 1 100% ",
	} {
		if have := rowOf(t, out, word); !strings.HasPrefix(have, want) {
			t.Errorf("%q, want %q…", have, want)
		}
	}
	testkit.Lacks(t, out, "later")
	testkit.Has(t, out, "\nsmall  big             2     100%      40%\n")

	// The daemon looks at its files on its own, and says when: two answers are
	// compared that have no such look between them.
	var body string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("--json printed %s\n/v1/lists has %s", out, body)
		}
	})
	testkit.Eventually(t, "--json to print what /v1/lists has", func() bool {
		_, body = d.get(t, "/v1/lists", auth...)
		_, out, _ = blockd(t, "", "lists", "-c", ask, "--json")
		return out == body
	})
	var table httpapi.ListTable
	testkit.Must(t, json.Unmarshal([]byte(body), &table))
	big := table.Worth[1]
	if big.List != "big" || big.Files != 2 || *big.Hits != 2 || *big.Sole != 1 || *big.Overridden != 1 || big.LastHit == nil || !big.Stale ||
		len(big.Overlaps) != 1 || big.Overlaps[0] != (httpapi.ListOverlap{List: "small", Keys: 2}) {
		t.Errorf("big: %+v", big)
	}
	if small := table.Worth[0]; *small.Hits != 1 || *small.Sole != 0 || *small.Overridden != 1 {
		t.Errorf("small: %d hits, %d sole, %d overridden", *small.Hits, *small.Sole, *small.Overridden)
	}

	small := testkit.Read(t, filepath.Join(dir, "lists/small.txt"))
	writeFile(t, dir, "lists/small.txt", string(small)+"no entry\n")
	testkit.Eventually(t, "the refused line to be told", func() bool {
		_, out, _ = blockd(t, "", "lists", "-c", ask)
		return strings.Contains(rowOf(t, out, "small"), " partial ")
	})
	remark := "list small: 1 line is refused (1 syntax), such as " + filepath.Join(dir, "lists/small.txt")
	testkit.Has(t, out, "\n"+remark, ": syntax: more than one word")
	if _, ready := d.get(t, "/readyz", auth...); !strings.HasPrefix(ready, "ok\n") && !strings.HasPrefix(ready, "degraded\n") || !strings.Contains(ready, "\n"+remark) {
		t.Errorf("/readyz is %q", ready)
	}

	writeFile(t, dir, "lists/small.txt", "<html>\n")
	testkit.Eventually(t, "the list to be refused", func() bool {
		_, out, _ = blockd(t, "", "lists", "-c", ask)
		return strings.Contains(rowOf(t, out, "small"), " refused ")
	})
	testkit.Has(t, out, "\nlist small: ", ": html: ")
	if _, out, _ = blockd(t, "", "lists", "-c", ask, "--files"); !strings.Contains(rowOf(t, out, "small"), " refused") ||
		strings.Count(out, "\nbig ") != 2 {
		t.Errorf("--files\n%s", out)
	}
	testkit.Must(t, os.Remove(filepath.Join(dir, "lists/small.txt")))
	testkit.Eventually(t, "the list to be missing", func() bool {
		_, out, _ = blockd(t, "", "lists", "-c", ask)
		return strings.Contains(rowOf(t, out, "small"), " missing ")
	})
}

// TestListsWithoutADaemon reads the index, and says what it could not ask.
func TestListsWithoutADaemon(t *testing.T) {
	dir, _ := listingDir(t, testkit.Refusing(t))
	config := filepath.Join(dir, "config.toml")

	says(t, exitFault, "no index yet", "lists", "-c", config)
	runs(t, "compile", "-c", config)
	code, out, errs := blockd(t, "", "lists", "-c", config)
	testkit.Got(code, strings.Count(errs, "\n"), errs)(t, "exit", 0, 1, "…no daemon answers at 127.0.0.1:…refused…")
	if have := rowOf(t, out, "big"); have != "big shadow 7 5 3 60% 40% small 40d stale - - -" {
		t.Errorf("%q", have)
	}
	code, out, errs = blockd(t, "", "lists", "-i", filepath.Join(dir, "var/a.bdx"), "--json")
	var table httpapi.ListTable
	testkit.Must(t, json.Unmarshal([]byte(out), &table))
	testkit.MustGot(code, errs)(t, "Unmarshal", 0, "")
	if w := table.Worth[0]; w.Hits != nil || w.LastHit != nil || w.Keys != 2 || w.State != httpapi.ListOK || table.Ready || !table.Since.IsZero() {
		t.Errorf("%+v", table)
	}
	testkit.Lacks(t, out, "0001-01-01")
}

// TestListsOfAnotherServer: what answers at the address need not be blockd, nor
// know the token.
func TestListsOfAnotherServer(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		says   string
	}{
		"a status": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "it says 401 Unauthorized"},
		"a page":   {func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) }, "no answer of blockd"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			testkit.Equal(t, "where the token went", r.URL.Path, "/v1/lists")
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, "it says 302 Found"},
	} {
		t.Run(name, func(t *testing.T) {
			l := testkit.Listen(t)
			server := &http.Server{Handler: http.HandlerFunc(tt.answer)}
			go server.Serve(l)
			defer server.Close()
			dir, _ := listingDir(t, l.Addr().String())
			config := filepath.Join(dir, "config.toml")
			runs(t, "compile", "-c", config)
			testkit.Got(blockd(t, "", "lists", "-c", config))(t, "lists", 0, "…friends…", "…"+tt.says+"…")
		})
	}
}

// TestListsFitATerminal: long names of other lists give way.
func TestListsFitATerminal(t *testing.T) {
	hits, now := uint64(12_345), time.Now()
	w := func(name, other string) httpapi.ListWorth {
		return httpapi.ListWorth{List: name, Action: "block", Mode: "enforce", Entries: 121_567, Keys: 121_555, Unique: 118_800,
			Overlaps: []httpapi.ListOverlap{{List: other, Keys: 2744}}, Hits: &hits, Sole: &hits, LastHit: &now, Modified: &now, State: httpapi.ListRefused}
	}
	var out strings.Builder
	v := listingView{now: now}
	testkit.Must(t, v.print(&out, httpapi.ListTable{Worth: []httpapi.ListWorth{w("disposable", "phishing"), w("phishing", "disposable-names")}}))
	for line := range strings.Lines(out.String()) {
		if n := term.Columns(strings.TrimSpace(line)); n > term.PlainWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	testkit.Has(t, out.String(), "phishing  ", "…")
}

// Where a list comes from is said by its file, and sooner by the configuration; a build from the cache keeps it. An entry of
// several lists shows all of them. An export says which lists may not be passed on, and writes them all the same.
func TestOrigins(t *testing.T) {
	dir := t.TempDir()
	const head = "# Title: Scams\x1b[2J\u202e\n# Homepage: https://list.example/\n# License: CC BY-NC-SA 4.0\n# Expires: 2 days\n"
	writeFile(t, dir, "lists/a.txt", "bad.example\n")
	writeFile(t, dir, "more/a.txt", head+"bulk.example\n")
	writeFile(t, dir, "more/b.txt", "# License: MIT\n# Complaints: mailto:help@b.example\nbulk.example\n")
	tables := func(more string) string {
		return anyPorts + "\n[[list]]\nname = \"scams\"\npath = \"more/a.txt\"\nformat = \"plain\"\n" + more +
			"\n[[list]]\nname = \"second\"\npath = \"more/b.txt\"\nformat = \"plain\"\n"
	}
	file := writeFile(t, dir, "config.toml", tables(""))
	compile := func() {
		t.Helper()
		runs(t, "compile", "-c", file)
	}
	worth := func(name string) (w httpapi.ListWorth) {
		t.Helper()
		_, out, _ := blockd(t, "", "lists", "--json", "-c", file)
		var table httpapi.ListTable
		testkit.Must(t, json.Unmarshal([]byte(out), &table))
		for _, w := range table.Worth {
			if w.List == name {
				return w
			}
		}
		t.Fatalf("no list %s", name)
		return w
	}
	compile()
	for _, when := range []string{"read", "from the cache"} {
		w := worth("scams")
		testkit.Got(w.Title, w.Homepage, w.Licence, w.Restricted, w.ExpiresSeconds, w.Complaints)(t, when, "Scams [2J", "https://list.example/", "CC BY-NC-SA 4.0", true, 2*86400, "")
		writeFile(t, dir, "lists/a.txt", "bad.example\nanother.example\n")
		compile()
	}
	testkit.Got(blockd(t, "", "lists", "-c", file))(t, "lists", "…", "…scams…CC BY-NC-SA 4.0  https://list.example/  -…", "…")
	_, out, _ := blockd(t, "", "check", "--explain", "-c", file, "x@bulk.example")
	for _, want := range []string{"more/a.txt:5, list scams: block bulk.example", "more/b.txt:3, list second: block bulk.example",
		"scams: Scams [2J, https://list.example/, licence CC BY-NC-SA 4.0\n", "second: licence MIT, complaints to mailto:help@b.example\n"} {
		testkit.Has(t, out, want)
	}
	testkit.Got(blockd(t, "", "check", "--explain", "--json", "-c", file, "x@bulk.example"))(t, "explain in JSON", "…", `…"homepage":"https://list.example/"…`, "…")

	code, list, notes := blockd(t, "", "export", "--format", "plain", "-c", file)
	if !strings.Contains(list, "bulk.example") || !strings.Contains(notes, "the licence of scams may not let you pass it on: CC BY-NC-SA 4.0\n") || strings.Contains(notes, "second") {
		t.Errorf("export: %d, %q, %q", code, list, notes)
	}
	_, _, notes = blockd(t, "", "export", "--format", "plain", "--json", "-c", file)
	var told export.Told
	if err := json.Unmarshal([]byte(notes), &told); err != nil || len(told.Restricted) != 1 || told.Restricted[0] != (export.Restricted{List: "scams", Licence: "CC BY-NC-SA 4.0"}) {
		t.Errorf("export --json: %q, %v", notes, err)
	}

	writeFile(t, dir, "config.toml", tables("homepage = \"https://ours.example/\"\ncomplaints = \"mailto:us@ours.example\"\nlicence = \"by agreement\"\n"))
	if w := worth("scams"); w.Homepage != "https://ours.example/" || w.Complaints != "mailto:us@ours.example" || w.Licence != "by agreement" || w.Restricted || w.Title != "Scams [2J" {
		t.Errorf("by the configuration: %+v", w)
	}
	writeFile(t, dir, "config.toml", tables("url = \"https://raw.githubusercontent.com/stamparm/ipsum/master/levels/4.txt\"\n"))
	if w := worth("scams"); w.Complaints != "https://github.com/stamparm/ipsum/issues" || w.Licence != "CC BY-NC-SA 4.0" {
		t.Errorf("by the catalogue: %+v", w)
	}
	for text, want := range map[string]string{
		`homepage = "javascript:alert(1)"`:             "list.homepage: want an address that begins with https://, http:// or mailto:",
		`homepage = "https://a b"`:                     "list.homepage: want",
		`complaints = "https://user:secret@a.example"`: "list.complaints: want",
		`complaints = "help@a.example"`:                "list.complaints: want",
		`licence = "two\nlines"`:                       "list.licence: want one line",
		`licence = "turned \u202e around"`:             "list.licence: want one line",
	} {
		writeFile(t, dir, "config.toml", tables(text+"\n"))
		if code, out, stderr := blockd(t, "", "config", "--check", "-c", file); code == 0 || !strings.Contains(out+stderr, want) {
			t.Errorf("%s: %d, %q, want %q", text, code, out+stderr, want)
		}
	}
}
