package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// delivered are the messages in a Maildir.
func delivered(t *testing.T, dir string) (all []*mail.Message) {
	t.Helper()
	files := testkit.Value(filepath.Glob(filepath.Join(dir, "new", "*")))(t)
	for _, path := range files {
		m := testkit.Value(mail.ReadMessage(strings.NewReader(string(testkit.Read(t, path)))))(t)
		all = append(all, m)
	}
	return all
}

// The letter is shown and sent by the daemon, and by the files where none runs; it tells of a refusal, of one that an exception
// has lifted since, and of who has added it; and its own way out is no decision.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	box := filepath.Join(dir, "letters")
	file := writeFile(t, dir, "config.toml", anyPorts+"[report]\nto = \"postmaster@here.example, anna@here.example\"\nvia = \"maildir:letters\"\n")
	writeFile(t, dir, "lists/a.txt", "bulk.example\nother.example\n")
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "lists swapped in")
	for _, sender := range []string{"a@bulk.example", "b@other.example"} {
		if reply := d.send(t, sender, "bob@here.example"); !strings.HasPrefix(reply, "550 ") {
			t.Fatalf("%s: %q", sender, reply)
		}
	}
	runs(t, "add", "-c", file, "--action", "allow", "a@bulk.example")
	has := func(text string) {
		t.Helper()
		testkit.Has(t, text, ": 2 refused, 1 perhaps by mistake", "\nbad         2        2          2\n", "a@bulk.example      1  let in since  bad ", "entry.add")
	}
	code, out, stderr := blockd(t, "", "report", "-c", file, "--since", "1h")
	testkit.Got(code, stderr)(t, "report", 0, "")
	has(out)
	code, out, stderr = blockd(t, "", "report", "-c", file, "--send")
	testkit.Got(code, out, stderr)(t, "report --send", 0, "…sent to postmaster@here.example: 250 …sent to anna@here.example: 250 …", "…")
	letters := delivered(t, box)
	if len(letters) == 0 {
		t.Fatal("no letter in the mailbox")
	}
	body := testkit.Value(io.ReadAll(quotedprintable.NewReader(letters[0].Body)))(t)
	has("Subject: " + letters[0].Header.Get("Subject") + "\n" + strings.ReplaceAll(string(body), "\r\n", "\n"))
	testkit.Equal(t, "Return-Path", letters[0].Header.Get("Return-Path"), "<>")
	testkit.Eventually(t, "the file that says when the next one is due", func() bool {
		_, err := os.Stat(filepath.Join(dir, "var", "a.bdx.report"))
		return err == nil
	})
	d.end(t)

	code, out, stderr = blockd(t, "", "report", "-c", file, "--json")
	var l struct {
		Mail struct{ Decisions, Refused int }
	}
	testkit.Must(t, json.Unmarshal([]byte(out), &l))
	testkit.Got(code, l.Mail.Refused, l.Mail.Decisions, out, stderr)(t, "report --json without a daemon", 0, 2, 2, "…", "…")
	_, out, _ = blockd(t, "", "report", "-c", file)
	has(out)
	if code, _, stderr = blockd(t, "", "report", "-c", file, "--send"); code != 0 || len(delivered(t, box)) <= len(letters) {
		t.Errorf("report --send without a daemon: %d, %q", code, stderr)
	}
}

func TestReportErrors(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                                   "report.to is empty",
		"[report]\nto = \"postmaster\"\n":    "report.to: want an address",
		"[report]\nto = \"<a@b.example>\"\n": "report.to: want an address",
		"[report]\nto = \"a@b.example\"\nevery = \"5m\"\n":                               "report.every: want 1h to 31d",
		"[report]\nto = \"a@b.example\"\nvia = \"here\"\n":                               "report.via: want \"smtp://HOST:PORT\"",
		"[report]\nto = \"a@b.example\"\nvia = \"smtp://" + testkit.Refusing(t) + "\"\n": "report.via: ",
	} {
		file := writeFile(t, dir, "config.toml", anyPorts+text)
		testkit.Got(blockd(t, "", "report", "-c", file, "--send"))(t, fmt.Sprintf("%q", text), exitFault, "", "…"+want+"…")
	}
}

// ringsAt is a folder with a configuration whose notify.url is a receiver, and what that was told. What is signed by another
// secret fails the test.
func ringsAt(t *testing.T) (dir, list string, events chan rung) {
	t.Helper()
	const secret = "0123456789abcdef"
	events = make(chan rung, 16)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		at, signature, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("X-Blockd-Signature"), "t="), ",v1=")
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%s.%s", at, body)
		testkit.Equal(t, fmt.Sprintf("signed %q: %s", r.Header.Get("X-Blockd-Signature"), body), signature, hex.EncodeToString(mac.Sum(nil)))
		var e rung
		if err := json.Unmarshal(body, &e); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		events <- e
		io.WriteString(w, "noted\n")
	}))
	t.Cleanup(srv.Close)
	dir = t.TempDir()
	writeFile(t, dir, "config.toml", anyPorts+"[notify]\nurl = \""+srv.URL+"/hook\"\nsecret_file = \"secret\"\n")
	writeFile(t, dir, "secret", secret+"\n")
	return dir, writeFile(t, dir, "lists/a.txt", "bulk.example\n"), events
}

// rung is what a receiver reads.
type rung struct {
	Event, Host, Version, ID string
	Problems                 []struct{ Name, List, Text string }
}

// A load that is refused rings, by the name and the text that /readyz has; so does a test. That what fails is tried again is
// proved in package bell, in no time.
func TestNotify(t *testing.T) {
	t.Parallel() // it waits for what has to hold for ten seconds
	dir, list, events := ringsAt(t)
	testkit.Got(blockd(t, "", "notify", "--test", "-c", filepath.Join(dir, "config.toml")))(t, "notify --test", 0, "delivered: 200 OK in …noted\n", "…")
	if e := <-events; e.Event != "test" {
		t.Errorf("test: %+v", e)
	}
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "lists swapped in")
	testkit.Must(t, os.Remove(list))
	e := <-events
	_, ready := d.get(t, "/readyz")
	if e.Event != "degraded" || len(e.Problems) != 1 || e.Problems[0].Name != "list_refused" || e.Problems[0].List != "bad" || !strings.Contains(ready, e.Problems[0].Text+"\n") {
		t.Errorf("%+v; /readyz:\n%s", e, ready)
	}
	d.wait(t, "notify.url told")
	d.waitMetric(t, "blockd_notify_undelivered 0")
	d.end(t)
	testkit.Has(t, string(testkit.Read(t, filepath.Join(dir, "var", "a.bdx.notify"))), `"problems":["list_refused bad"]`)
}

func TestNotifyErrors(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		text string
		args string
		code int
		want string
	}{
		{"", "", exitUsage, "want --test"},
		{"", "--test", exitFault, "notify.url is empty, so that nobody is told"},
		{"[notify]\nurl = \"http://hooks.example.org/x\"\n", "--test", exitFault, "config.toml:%: notify.url: http:// goes to this machine alone"},
		{"[notify]\nurl = \"http://127.0.0.1:1/x\"\nsecret_file = \"none\"\n", "--test", exitFault, "notify.secret_file: open "},
		{"[notify]\nurl = \"http://" + testkit.Refusing(t) + "/x\"\n", "--test", exitFault, "connection refused"},
		{"[notify]\ninsecure = true\n", "--test", exitFault, "notify.insecure: has no effect without notify.url"},
	} {
		file := writeFile(t, dir, "config.toml", anyPorts+tt.text)
		code, out, stderr := blockd(t, "", append([]string{"notify", "-c", file}, strings.Fields(tt.args)...)...)
		before, after, _ := strings.Cut(tt.want, "%")
		if code != tt.code || out != "" || !strings.Contains(stderr, before) || !strings.Contains(stderr, after) {
			t.Errorf("%q %s: %d, %q, %q; want %d, %q", tt.text, tt.args, code, out, stderr, tt.code, tt.want)
		}
	}
}
