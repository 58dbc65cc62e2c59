package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"blockd/internal/testkit"
)

// publisher is a web server over https with one list, /bad.txt.
type publisher struct {
	*httptest.Server
	mu     sync.Mutex
	answer http.HandlerFunc
	asked  int
	header http.Header // of the last request for the list
}

func newPublisher(t *testing.T) *publisher {
	p := &publisher{answer: http.NotFound}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		answer := p.answer
		if r.URL.Path == "/bad.txt" {
			p.asked, p.header = p.asked+1, r.Header.Clone()
		}
		p.mu.Unlock()
		answer(w, r)
	}))
	p.Config.ErrorLog = nil
	t.Cleanup(p.Close)
	return p
}

func (p *publisher) set(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// text publishes text with an ETag, whatever is asked for.
func (p *publisher) text(text string) {
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text)))
	p.set(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Write([]byte(text))
	})
}

// requests is how often the list was asked for.
func (p *publisher) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// lists is the [[list]] of a configuration, with more keys.
func (p *publisher) list(more string) string {
	return "[[list]]\nname = \"bad\"\nurl = \"" + p.URL + "/bad.txt\"\npath = \"copies/bad.txt\"\nformat = \"plain\"\n" + more
}

// hangUp signals this process: every daemon in it reloads.
func hangUp(t *testing.T) {
	t.Helper()
	testkit.Must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
}

// waitRecord waits for a log record with that message and those texts in fields.
func (d *running) waitRecord(t *testing.T, msg string, fields ...string) {
	t.Helper()
	testkit.Eventually(t, "a record "+msg+" with "+strings.Join(fields, ", "), func() bool {
		for s := bufio.NewScanner(strings.NewReader(d.log.String())); s.Scan(); {
			var record map[string]any
			if json.Unmarshal(s.Bytes(), &record) != nil || record["msg"] != msg {
				continue
			}
			all := fmt.Sprint(record)
			found := true
			for _, f := range fields {
				found = found && strings.Contains(all, f)
			}
			if found {
				return true
			}
		}
		return false
	})
}

func (d *running) blocks(t *testing.T, sender string) bool {
	t.Helper()
	_, body := d.get(t, "/v1/check?sender="+sender)
	return strings.Contains(body, `"verdict":"blocked"`)
}

// waitBlocked waits until the sender is, or is not, refused.
func (d *running) waitBlocked(t *testing.T, sender string, want bool) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%s blocked: %v", sender, want), func() bool { return d.blocks(t, sender) == want })
}

const remoteDoors = `
[index]
path = "var/a.bdx"
quiet = "20ms"
poll = "1s"
[smtp]
listen = "127.0.0.1:0"
hostname = "filter.here.example"
upstream = "maildir:mail"
[milter]
listen = ""
[postfix]
policy_listen = ""

[http]
listen = "127.0.0.1:0"
[log]
format = "json"
`

// TestServeFetchesAList goes through the life of a remote list: the daemon starts
// before there is a copy, takes what is a list, and whatever the server answers
// after that, the last good list refuses mail.
func TestServeFetchesAList(t *testing.T) {
	p, dir := newPublisher(t), t.TempDir()
	release := make(chan struct{})
	p.set(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.Header().Set("ETag", `"1"`)
		fmt.Fprintln(w, "bulk.example")
	})
	writeFile(t, dir, "config.toml", remoteDoors+p.list("every = \"1d\"\n"))
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "upstream ready")
	testkit.Got(d.get(t, "/readyz"))(t, "without a copy", http.StatusServiceUnavailable, "…copies/bad.txt: missing…")
	close(release)
	d.waitBlocked(t, "x@bulk.example", true)
	testkit.Begins(t, "a listed sender", d.send(t, "x@bulk.example", "you@here.example"), "550 5.7.1 ")
	testkit.Eventually(t, "readiness", func() bool { _, body := d.get(t, "/readyz"); return body == "ok\n" })

	p.set(func(w http.ResponseWriter, r *http.Request) {
		testkit.Equal(t, fmt.Sprintf("the server is not told what the copy is: %v", r.Header), r.Header.Get("If-None-Match"), `"1"`)
		w.WriteHeader(http.StatusNotModified)
	})
	hangUp(t)
	d.waitMetric(t, `blockd_fetch_total{list="bad",result="unchanged"} 1`)

	copied := filepath.Join(dir, "copies", "bad.txt")
	before := testkit.Value(os.Stat(copied))(t)
	for _, tt := range []struct {
		name, class, text string
		answer            http.HandlerFunc
	}{
		{"an error page", "html", "web page", body("<!doctype html>\n<title>Bulk.example is down</title>\n")},
		{"a poisoned list", "refused", "protected: ", body("bulk.example\ngmail.com\noutlook.com\nyahoo.com\nicloud.com\naol.com\nhotmail.com\n")},
		{"a fault of the server", "status", "503", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}},
	} {
		p.set(tt.answer)
		hangUp(t)
		d.waitRecord(t, "list not fetched", "class:"+tt.class, tt.text, "list:bad")
		if after, err := os.Stat(copied); err != nil || !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
			t.Errorf("%s: the copy is another one: %v", tt.name, err)
		}
		if !d.blocks(t, "x@bulk.example") || d.blocks(t, "x@gmail.com") {
			t.Errorf("%s: another list serves", tt.name)
		}
	}
	testkit.Got(d.get(t, "/readyz"))(t, "/readyz after three failures", http.StatusOK, "degraded\nlist bad: …; the copy serves on\n")

	p.text("other.example\n")
	hangUp(t)
	testkit.Eventually(t, "what was degraded is well", func() bool { _, body := d.get(t, "/readyz"); return body == "ok\n" })
	d.waitBlocked(t, "x@other.example", true)
	d.waitBlocked(t, "x@bulk.example", false)
	d.end(t)

	p.Close() // away, with a good copy on disk
	d = serveIn(t, dir, "smtp", "http")
	if !d.blocks(t, "x@other.example") {
		t.Errorf("the copy does not serve from the first moment\n%s", d.log)
	}
	hangUp(t)
	d.waitRecord(t, "list not fetched", "class:unreachable", "next:")
	d.wait(t, "upstream ready")
	testkit.Got(d.get(t, "/readyz"))(t, "/readyz", http.StatusOK, "…")
}

func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(text)) }
}

// waitMetric waits for a line of /metrics.
func (d *running) waitMetric(t *testing.T, line string) {
	t.Helper()
	testkit.Eventually(t, line, func() bool {
		_, body := d.get(t, "/metrics")
		return strings.Contains(body, "\n"+line+"\n")
	})
}

// TestCompileFetches says what compile asks the server for, and what it makes of
// the answer.
func TestCompileFetches(t *testing.T) {
	p, dir := newPublisher(t), t.TempDir()
	p.text("bulk.example\n")
	config := writeFile(t, dir, "config.toml", remoteDoors+p.list(""))
	run := func(wantCode, wantAsked int, wantErr string, args ...string) {
		t.Helper()
		code, _, stderr := blockd(t, "", append([]string{"compile", "-c", config}, args...)...)
		if code != wantCode || p.requests() != wantAsked || !strings.Contains(stderr, wantErr) || wantErr == "" && stderr != "" {
			t.Errorf("compile %q: exit %d after %d requests, %q; want %d after %d, %q", args, code, p.requests(), stderr, wantCode, wantAsked, wantErr)
		}
	}
	run(1, 0, "copies/bad.txt: missing: ", "--offline")
	run(0, 1, "")
	run(0, 1, "") // the copy is fresh
	runs(t, "check", "-c", config, "x@bulk.example")
	p.set(body("<html>"))
	writeFile(t, dir, "copies/bad.txt", "edited.example\n") // so it is asked again
	run(0, 2, "list bad: html: the answer is a web page or XML, not a list; its copy stays as it is\n")
	p.text("bulk.example\n")
	writeFile(t, dir, "config.toml", remoteDoors+p.list("checksum = \"sha256:"+strings.Repeat("0", 64)+"\"\n"))
	run(0, 3, "list bad: checksum: the file's sha256 is ")
	testkit.Must(t, os.Remove(filepath.Join(dir, "copies", "bad.txt")))
	run(1, 4, "copies/bad.txt: missing: ")
	writeFile(t, dir, "config.toml", remoteDoors+p.list("signature = \"minisign:RWRmiVOXZ1fYKcpc4VwsbNs61P0i0nHcdvDRFD15e4ARkRInafxgVULc\"\n"))
	run(1, 5, "list bad: signature: what is published as the signature is none of minisign")
	p.set(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, map[string]string{
			"/bad.txt": testkit.Root(t) + "/sources/remote/testdata/minisign/list.txt", "/bad.txt.minisig": testkit.Root(t) + "/sources/remote/testdata/minisign/list.txt.minisig",
		}[r.URL.Path])
	})
	run(0, 6, "")
	code, _, stderr := blockd(t, "", "compile", "--offline", "-o", dir+"/x.bdx", filepath.Join(dir, "copies", "bad.txt"))
	testkit.Got(code, stderr)(t, "--offline with -o", 2, "…--offline goes with a configuration…")
}

// TestServeRefusesAListOfWhomItTookMailFrom is the gate's rule recent, from the
// sessions that deliver messages to the word of a person that overrides it.
func TestServeRefusesAListOfWhomItTookMailFrom(t *testing.T) {
	dir := t.TempDir()
	config := writeFile(t, dir, "config.toml", remoteDoors+"[[list]]\nname = \"bad\"\npath = \"bad.txt\"\nformat = \"plain\"\n")
	writeFile(t, dir, "bad.txt", "bulk.example\n")
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "upstream ready")
	poison := "bulk.example\n"
	for i := range 100 { // as many as it takes to say anything
		d.sendFrom(t, fmt.Sprintf("127.0.%d.1", i), fmt.Sprintf("friend@d%d.example", i), "you@here.example")
	}
	for i := range 15 {
		poison += fmt.Sprintf("d%d.example\n", i)
	}
	d.sendFrom(t, "127.0.0.1", "x@bulk.example", "you@here.example") // refused: nobody to protect
	writeFile(t, dir, "bad.txt", poison)
	d.waitRecord(t, "lists refused", "class:recent", "would refuse 15 of the 100 senders", "friend@d0.example", "d0.example (line 2)", "list:bad")
	if d.blocks(t, "friend@d0.example") {
		t.Error("the poisoned list serves")
	}
	runs(t, "compile", "-c", config, "--accept")
	d.waitBlocked(t, "friend@d0.example", true)
	d.waitRecord(t, "lists accepted", "class:recent", "would refuse 15 of the 100 senders")
	d.waitRecord(t, "lists swapped in", "compiled by another process")
}

// sendFrom delivers a message as a client with that address does, as far as it comes.
func (d *running) sendFrom(t *testing.T, client, from, to string) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	conn := testkit.Value(dialer.DialContext(t.Context(), "tcp", d.smtp))(t)
	defer conn.Close()
	c := testkit.Value(smtp.NewClient(conn, "127.0.0.1"))(t)
	testkit.Must(t, c.Mail(from))
	if c.Rcpt(to) != nil {
		return
	}
	w, err := c.Data()
	if err == nil {
		_, err = w.Write([]byte("Subject: hello\r\n\r\nhello\r\n"))
	}
	testkit.Must(t, errors.Join(err, w.Close()))
}
