package main

import (
	"encoding/json"
	"fmt"
	"io"
	"mime/quotedprintable"
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
