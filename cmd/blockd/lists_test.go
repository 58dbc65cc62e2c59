package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
