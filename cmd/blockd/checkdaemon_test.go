package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"blockd/doors/httpapi"
	"blockd/internal/testkit"
)

// asks runs check and wants an exit code, what its output begins with, and a text in what it says on standard error: "" is nothing.
func asks(t *testing.T, code int, out, says string, args ...string) {
	t.Helper()
	got, stdout, stderr := blockd(t, "", append([]string{"check"}, args...)...)
	if got != code || !strings.HasPrefix(stdout, out) || !strings.Contains(stderr, says) || says == "" && stderr != "" || strings.Count(stderr, "\n") > 1 {
		t.Errorf("check %q: %d, %q, %q, want %d, %q and %q", args, got, stdout, stderr, code, out, says)
	}
}

// What the daemon holds and no file does is said by both; every form of the answer is the file's where they agree.
func TestCheckAsksTheDaemon(t *testing.T) {
	d := serveLists(t, anyPorts+"[[policy]]\nrecipients = [\"vip@here.example\"]\nlists = []\n", "bulk.example\n")
	config := d.file()
	letter := writeFile(t, t.TempDir(), "a.eml", "Return-Path: <x@bulk.example>\nFrom: x@bulk.example\n\ntext\n")
	for _, args := range [][]string{
		{"x@bulk.example", "x@clear.example", "two words@x", "<>", "", "192.0.2.1", "bulk.example", "a\nb@bulk.example", "x+y@bulk.example", "\xff@bulk.example", strings.Repeat("a", maxSender) + "b@bulk.example"},
		{"--json", "x@bulk.example", "\xff@bulk.example"},
		{"--json", "--explain", "x@bulk.example", "bulk.example"},
		{"--client", "192.0.2.1", "bulk.example", "x@bulk.example"},
		{"--recipient", "vip@here.example", "x@bulk.example"},
		{"--recipient", "postmaster@here.example", "x@bulk.example"},
		{"--explain", "x@bulk.example", "x@clear.example"},
		{"--message", letter, "--helo", "mx.bulk.example"},
		{"--message", letter, "--json", "a@clear.example"},
	} {
		code, want, errs := blockd(t, "", append([]string{"check", "-c", config, "--file"}, args...)...)
		if errs != "" || want == "" {
			t.Errorf("check --file %q: %q, %q", args, want, errs)
		}
		got, have, errs := blockd(t, "", append([]string{"check", "-c", config}, args...)...)
		ref := regexp.MustCompile(`ref [0-9A-Za-z]+`) // each answer has its own
		if have, want = ref.ReplaceAllString(have, "ref"), ref.ReplaceAllString(want, "ref"); have != want || got != code || errs != "" {
			t.Errorf("check %q: %d, %s\n%s, want %d\n%s", args, got, errs, have, code, want)
		}
	}
	stdin := "x@bulk.example\n\r\n\nx@bulk.example\r\r\n" + strings.Repeat("y@clear.example\nx@bulk.example\n", 3000) + strings.Repeat("a", 40<<10) + "\nlast@bulk.example"
	_, want, _ := blockd(t, stdin, "check", "-c", config, "--file", "-")
	if code, got, errs := blockd(t, stdin, "check", "-c", config, "-"); code != 0 || got != want || errs != "" {
		t.Errorf("check -: %d, %d octets, want %d, %s", code, len(got), len(want), errs)
	}
	runs(t, "add", "-c", config, "x@live.example")
	testkit.Got(blockd(t, "", "check", "-c", config, "x@live.example"))(t, "of a live entry", 0, "x@live.example\tblocked\tlive:…", "…")
	if _, body := d.get(t, "/metrics"); strings.Contains(body, "blockd_list_hits_total{") {
		t.Error("questions of check are hits")
	}
}

func TestCheckSaysWhoAnswersWhereDaemonAndFilesDiffer(t *testing.T) {
	d := serveLists(t, anyPorts, "bulk.example\n")
	config := d.file()
	blocked, clear := "x@bulk.example\tblocked\t", "x@new.example\tclear\t"
	// Another file lies where the index was: the daemon has the old one.
	bdx := filepath.Join(d.dir, "var/a.bdx")
	own := testkit.Read(t, bdx)
	other := filepath.Join(d.dir, "other.bdx")
	runs(t, "compile", "-o", other, writeFile(t, d.dir, "bad.txt", "new.example\n"))
	testkit.Must(t, os.Rename(other, bdx))
	asks(t, 0, blocked, "note: it serves generation ", "-c", config, "x@bulk.example")
	asks(t, 1, "x@bulk.example\tclear\t", "", "-i", bdx, "x@bulk.example")
	testkit.Must(t, os.WriteFile(bdx, []byte(own), 0o600))

	// A list that the daemon refuses, and while it does.
	writeFile(t, d.dir, "lists/a.txt", "#? block x@other.example\nnew.example\n")
	testkit.Eventually(t, "the list to be refused", func() bool { _, body := d.get(t, "/readyz"); return strings.Contains(body, "bad") })
	asks(t, 1, clear, "lists/a.txt has changed since", "-c", config, "x@new.example")
	asks(t, 0, blocked, "the answers are those of the daemon", "-c", config, "x@bulk.example")

	// A configuration that the daemon has not taken up, and one of another index.
	text := string(testkit.Read(t, config))
	writeFile(t, d.dir, "config.toml", text+"[refusal]\ncontact = \"https://here.example/\"\n")
	asks(t, 0, blocked, "it serves another configuration than "+config, "-c", config, "x@bulk.example")
	socket := bdx + ".sock"
	elsewhere := writeFile(t, t.TempDir(), "config.toml", "[index]\npath = \"b.bdx\"\n[http]\nsocket = \""+socket+"\"\n")
	asks(t, 0, blocked, "it serves another index, "+bdx, "-c", elsewhere, "x@bulk.example")

	writeFile(t, d.dir, "config.toml", text)
	d.end(t)
	writeFile(t, d.dir, "lists/a.txt", "bulk.example\n")
	asks(t, 0, blocked, "no daemon answers at "+socket+"; the answers are those of the file "+bdx, "-c", config, "x@bulk.example")
}

// A daemon that cannot be asked is named, and why.
func TestCheckOfADaemonThatDoesNotAnswer(t *testing.T) {
	config, dir := compiled(t)
	socket := filepath.Join(dir, "s")
	text := string(testkit.Read(t, config))
	writeFile(t, dir, "config.toml", text+"[http]\nsocket = \""+socket+"\"\n")
	const blocked = "x@bulk.example\tblocked\t"
	listen := func(answer http.HandlerFunc) {
		t.Helper()
		l := testkit.Value(net.Listen("unix", socket))(t)
		s := httptest.NewUnstartedServer(answer)
		s.Listener.Close()
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
	}
	asks(t, 0, blocked, "no daemon answers at "+socket, "-c", config, "x@bulk.example")

	hung := make(chan struct{})
	var now atomic.Pointer[http.HandlerFunc]
	answers := func(answer http.HandlerFunc) { now.Store(&answer) }
	answers(http.NotFound)
	listen(func(w http.ResponseWriter, r *http.Request) { (*now.Load())(w, r) })
	asks(t, 0, blocked, "it is an older blockd", "-c", config, "x@bulk.example")
	answers(func(http.ResponseWriter, *http.Request) { <-hung })
	asks(t, 0, blocked, "does not answer: no answer in time; the answers are those of the file", "-c", config, "x@bulk.example")
	close(hung)
	answers(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "nonsense") })
	asks(t, 0, blocked, "does not answer: no answer of blockd", "-c", config, "x@bulk.example")
	answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, "{}")
	})
	testkit.Got(blockd(t, "", "check", "-c", config, "x@bulk.example"))(t, "of one that goes away", 2, "", "…the daemon at "+socket+"…")
	if os.Geteuid() != 0 {
		testkit.Must(t, os.Chmod(socket, 0))
		asks(t, 0, blocked, "cannot be asked: ", "-c", config, "x@bulk.example")
	}
	writeFile(t, dir, "config.toml", text+"[http]\nsocket = \"none\"\n")
	asks(t, 0, blocked, "http.socket", "-c", config, "x@bulk.example")
}

// Live entries count in the table of lists from the moment on when they act.
func TestListsCountLiveEntriesAtOnce(t *testing.T) {
	d := serveLists(t, anyPorts, "bulk.example\n")
	for n := 1; n <= 20; n++ {
		runs(t, "add", "-c", d.file(), fmt.Sprintf("x%d@live.example", n))
		var table httpapi.ListTable
		if _, body := d.get(t, "/v1/lists"); json.Unmarshal([]byte(body), &table) != nil {
			t.Fatal(body)
		}
		file := slices.IndexFunc(table.Lists, func(f httpapi.ListFile) bool { return f.List == "live" })
		row := slices.IndexFunc(table.Worth, func(w httpapi.ListWorth) bool { return w.List == "live" })
		if row < 0 || table.Worth[row].Entries != n || file >= 0 && table.Lists[file].Entries != n {
			t.Errorf("after %d were added: %+v", n, table)
		}
	}
}
