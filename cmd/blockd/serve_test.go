package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// running is `blockd serve` in this process, on ports that the system chose.
type running struct {
	dir        string
	smtp, http string
	log        *logLines
	stop       context.CancelFunc
	ended      chan int
}

// serveIn starts the daemon with the configuration in dir, and waits for its doors.
func serveIn(t *testing.T, dir string, doors ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	d := &running{dir: dir, log: &logLines{}, stop: stop, ended: make(chan int, 1)}
	var out bytes.Buffer
	go func() {
		d.ended <- runContext(ctx, []string{"serve", "-c", filepath.Join(dir, "config.toml")}, nil, &out, d.log)
	}()
	t.Cleanup(func() {
		testkit.Equal(t, "serve ended with", d.end(t), 0)
		if t.Failed() {
			t.Logf("log:\n%s", d.log)
		}
		if out.Len() > 0 {
			t.Errorf("serve wrote to standard output, which is no terminal: %q", out.String())
		}
	})
	for _, door := range doors {
		record := d.wait(t, door+" listens")
		switch door {
		case "smtp":
			d.smtp = record["address"].(string)
		case "http":
			d.http = "http://" + record["address"].(string)
		}
	}
	return d
}

// serveLists starts a daemon with a configuration whose list lists/*.txt has these lines, and waits until mail can flow.
func serveLists(t *testing.T, config, lines string) *running {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir, "config.toml", config)
	writeFile(t, dir, "lists/a.txt", lines)
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "lists swapped in")
	d.wait(t, "upstream ready")
	return d
}

// file is the path of the daemon's configuration.
func (d *running) file() string { return filepath.Join(d.dir, "config.toml") }

// end stops the daemon as SIGTERM does and returns its exit code.
func (d *running) end(t *testing.T) int {
	t.Helper()
	d.stop()
	select {
	case code := <-d.ended:
		d.ended <- code
		return code
	case <-time.After(time.Minute):
		t.Fatalf("serve did not end\n%s", d.log)
		return -1
	}
}

// wait returns the first log record with that message.
func (d *running) wait(t *testing.T, msg string) (record map[string]any) {
	t.Helper()
	testkit.Eventually(t, "the log to say "+msg, func() bool {
		record = d.log.find(msg)
		return record != nil
	})
	return record
}

func (d *running) get(t *testing.T, path string, header ...string) (status int, body string) {
	t.Helper()
	req := testkit.Value(http.NewRequest("GET", d.http+path, nil))(t)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp := testkit.Value(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	text := testkit.Value(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(text)
}

// session is one SMTP session behind its greeting.
func (d *running) session(t *testing.T) (say func(line string) (reply string), hangUp func() error) {
	t.Helper()
	conn := testkit.Value(net.Dial("tcp", d.smtp))(t)
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	c := textproto.NewConn(conn)
	say = func(line string) string {
		t.Helper()
		if line != "" {
			testkit.Must(t, c.PrintfLine("%s", line))
		}
		code, text, err := c.ReadResponse(0)
		if err != nil && code == 0 {
			t.Fatalf("after %q: %v", line, err)
		}
		return fmt.Sprintf("%d %s", code, text)
	}
	say("")
	return say, conn.Close
}

// send plays one message and returns the reply that decided it.
func (d *running) send(t *testing.T, from, to string) string {
	t.Helper()
	say, hangUp := d.session(t)
	defer hangUp()
	if reply := say("EHLO client.there.example"); reply[0] != '2' {
		return reply
	}
	say("MAIL FROM:<" + from + ">")
	if reply := say("RCPT TO:<" + to + ">"); reply[0] != '2' {
		return reply
	}
	say("DATA")
	return say("Subject: hello\r\n\r\nhello\r\n.")
}

// logLines keeps the log, one record a line.
type logLines struct{ testkit.Log }

func (l *logLines) find(msg string) map[string]any {
	for s := bufio.NewScanner(strings.NewReader(l.String())); s.Scan(); {
		var record map[string]any
		if json.Unmarshal(s.Bytes(), &record) == nil && record["msg"] == msg {
			return record
		}
	}
	return nil
}

const anyPorts = `
[index]
path = "var/a.bdx"
quiet = "20ms"
[smtp]
listen = "127.0.0.1:0"
hostname = "filter.here.example"
upstream = "maildir:mail"
[http]
listen = "127.0.0.1:0"
[milter]
listen = ""
[postfix]
policy_listen = ""
[log]
format = "json"
[[list]]
name = "bad"
path = "lists/*.txt"
format = "plain"
`

// The main job, once through everything that main wires together.
func TestServe(t *testing.T) {
	d := serveLists(t, anyPorts, "bulk.example\n")

	refused := d.send(t, "x@bulk.example", "you@here.example")
	testkit.Begins(t, "a listed sender", refused, "550 5.7.1 <x@bulk.example>: Sender address rejected: listed in bad (ref ")
	testkit.Begins(t, "a listed sender to postmaster", d.send(t, "x@bulk.example", "postmaster@here.example"), "250 ")
	testkit.Begins(t, "a clear sender", d.send(t, "friend@clear.example", "you@here.example"), "250 ")
	if files, _ := filepath.Glob(d.dir + "/mail/new/*"); len(files) != 2 {
		t.Errorf("%d messages in the Maildir, want 2", len(files))
	}
	testkit.Got(d.get(t, "/readyz"))(t, "/readyz", 200, "ok\n")
	testkit.Got(d.get(t, "/v1/check?sender=x@bulk.example"))(t, "/v1/check", 200, `…"verdict":"blocked"…`)
	_, metrics := d.get(t, "/metrics")
	for _, series := range []string{"go_goroutines", "process_open_fds", "blockd_smtp_sessions_total 3"} {
		testkit.Has(t, metrics, "\n"+series)
	}

	writeFile(t, d.dir, "lists/b.txt", "clear.example\n")
	testkit.Eventually(t, "a new file to act", func() bool {
		_, body := d.get(t, "/v1/check?sender=friend@clear.example")
		return strings.Contains(body, `"verdict":"blocked"`)
	})
	if code := d.end(t); code != 0 || d.log.find("stopped") == nil {
		t.Errorf("exit %d\n%s", code, d.log)
	}
	if _, err := net.Dial("tcp", d.smtp); err == nil {
		t.Error("the SMTP door is open after the end")
	}
}

func TestServeReloadsAtOnceOnSIGHUP(t *testing.T) {
	// No event and no poll would show the change within this test.
	d := serveLists(t, strings.NewReplacer(`"20ms"`, `"1m"`).Replace(anyPorts), "bulk.example\n")
	writeFile(t, d.dir, "lists/a.txt", "other.example\n")
	testkit.Must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	testkit.Eventually(t, "the reload", func() bool {
		_, body := d.get(t, "/v1/check?sender=x@other.example")
		return strings.Contains(body, `"verdict":"blocked"`)
	})
}

func TestServeWithOneDoor(t *testing.T) {
	for _, door := range []string{"smtp", "http"} {
		t.Run(door, func(t *testing.T) {
			dir := t.TempDir()
			other := map[string]string{"smtp": "http", "http": "smtp"}[door]
			config := strings.Replace(anyPorts, "["+other+"]\nlisten = \"127.0.0.1:0\"", "["+other+"]\nlisten = \"\"", 1)
			writeFile(t, dir, "config.toml", config)
			writeFile(t, dir, "lists/a.txt", "bulk.example\n")
			d := serveIn(t, dir, door)
			if door == "http" {
				testkit.Got(d.get(t, "/readyz"))(t, "/readyz", 200, "…")
				if _, err := os.Stat(dir + "/mail"); err == nil {
					t.Error("a mailbox was made though the SMTP door is shut")
				}
			}
		})
	}
}

// TestNotReadyWhileStopping: HTTP answers until the last transaction has ended, and
// says that no mail may be sent here any more.
func TestNotReadyWhileStopping(t *testing.T) {
	d := serveLists(t, anyPorts, "bulk.example\n")
	say, hangUp := d.session(t)
	defer hangUp()
	say("EHLO client.there.example")
	if reply := say("MAIL FROM:<friend@clear.example>"); reply[0] != '2' {
		t.Fatal(reply)
	}
	d.stop()
	d.wait(t, "stopping")
	testkit.Got(d.get(t, "/readyz"))(t, "/readyz", 503, "not ready\nstopping…")
	testkit.Got(d.get(t, "/healthz"))(t, "/healthz", 200, "…")
}

// TestDegradedWithoutOneOfItsLists: a list that has never loaded is no reason to send
// mail elsewhere, where the others do not filter it.
func TestDegradedWithoutOneOfItsLists(t *testing.T) {
	d := serveLists(t, anyPorts+"[[list]]\nname = \"missing\"\npath = \"missing.txt\"\nformat = \"plain\"\n", "bulk.example\n")
	testkit.Got(d.get(t, "/readyz"))(t, "/readyz", 200, "degraded: 1 of 2 lists filter\nlist missing: …")
	testkit.Got(d.get(t, "/v1/lists"))(t, "/v1/lists", "…", `…"ready":true,"lacks":"1 of 2 lists filter"…`)
	writeFile(t, d.dir, "missing.txt", "spam.example\n")
	testkit.Eventually(t, "all lists", func() bool {
		_, body := d.get(t, "/readyz")
		return body == "ok\n"
	})
}

// TestServeMakesAToken: from the first start on nobody without a token is told who wrote to
// whom, and the daemon's user has one.
func TestServeMakesAToken(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "config.toml", anyPorts)
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	path := filepath.Join(dir, "var/a.bdx.token")
	var token string
	for range 2 { // the second start keeps it
		d := serveIn(t, dir, "smtp", "http")
		d.wait(t, "upstream ready")
		d.send(t, "x@bulk.example", "you@here.example")
		info := testkit.Value(os.Stat(path))(t)
		testkit.MustEqual(t, "mode", info.Mode(), 0o600)
		text, err := os.ReadFile(path)
		if err != nil || token != "" && string(text) != token {
			t.Errorf("the token is another one: %v", err)
		}
		token = string(text)
		bearer := "Bearer " + strings.TrimSpace(token)
		for _, c := range []struct {
			path          string
			without, with int
		}{
			{"/v1/decisions", 401, 200}, {"/v1/entries", 401, 200}, {"/v1/lists?entries=9", 401, 200},
			{"/v1/lists", 200, 200}, {"/v1/check?sender=x@bulk.example", 200, 200}, {"/readyz", 200, 200}, {"/metrics", 200, 200}, {"/healthz", 200, 200},
		} {
			if status, body := d.get(t, c.path); status != c.without || status == 401 && strings.Contains(body, "bulk.example") {
				t.Errorf("%s without a token: %d, want %d: %s", c.path, status, c.without, body)
			}
			testkit.Got(d.get(t, c.path, "Authorization", bearer))(t, fmt.Sprintf("%s with the token", c.path), c.with, "…")
		}
		testkit.Got(d.get(t, "/v1/events"))(t, "/v1/events without a token", 401, "…")
		testkit.Lacks(t, d.log.String(), strings.TrimSpace(token))
		d.end(t)
	}
}

// TestCommandsReadTheFirstToken asks by TCP alone: the token's file is what opens it.
func TestCommandsReadTheFirstToken(t *testing.T) {
	config := strings.Replace(anyPorts, "[http]\nlisten = \"127.0.0.1:0\"", fmt.Sprintf("[http]\nlisten = %q\nsocket = \"none\"", testkit.Unused(t)), 1)
	d := serveLists(t, config, "bulk.example\n")
	d.send(t, "x@bulk.example", "you@here.example")
	prints(t, 0, "x@bulk.example", "history", "-c", d.file())
	runs(t, "add", "-c", d.file(), "other.example")
	t.Setenv("BLOCKD_TOKEN", "a-token-that-nobody-made")
	if code, _, errs := blockd(t, "", "history", "-c", d.file()); code == 0 || !strings.Contains(errs, "token") {
		t.Errorf("history with another token: %d, %s", code, errs)
	}
}

// An upstream that is away is no reason to be away too; it is said.
func TestServeInFrontOfAServerThatIsAway(t *testing.T) {
	away := testkit.Listen(t)
	away.Close()
	config := strings.Replace(anyPorts, `"maildir:mail"`, fmt.Sprintf("%q\nclient_info = \"none\"", "smtp://"+away.Addr().String()), 1)
	dir := t.TempDir()
	writeFile(t, dir, "config.toml", config)
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	d := serveIn(t, dir, "smtp", "http")
	var body string
	testkit.Eventually(t, "the first look at upstream", func() bool {
		var status int
		status, body = d.get(t, "/readyz")
		return status == 200 && strings.Contains(body, "degraded\nsmtp.upstream: ")
	})
	testkit.Begins(t, "EHLO before upstream was ever reached", d.send(t, "friend@there.example", "you@here.example"), "421 4.4.1 ")
}

func TestServeRefusesToStart(t *testing.T) {
	taken := testkit.Listen(t)
	defer taken.Close()
	for _, tt := range []struct {
		name, old, new, want string
	}{
		{"smtp port in use", `listen = "127.0.0.1:0"` + "\nhostname", fmt.Sprintf("listen = %q\nhostname", taken.Addr()),
			"blockd serve: smtp.listen: " + taken.Addr().String() + " is in use; is another blockd running?\n"},
		{"http port in use", "[http]\nlisten = \"127.0.0.1:0\"", fmt.Sprintf("[http]\nlisten = %q", taken.Addr()),
			"blockd serve: http.listen: " + taken.Addr().String() + " is in use; is another blockd running?\n"},
		{"foreign address", `listen = "127.0.0.1:0"` + "\nhostname", `listen = "192.0.2.1:25"` + "\nhostname",
			"blockd serve: smtp.listen: listen tcp 192.0.2.1:25: "},
		{"no token file", "[http]\n", "[http]\ntoken_file = \"token\"\n",
			"DIR/config.toml:10: http.token_file: open DIR/token: no such file or directory\nblockd serve: DIR/config.toml: 1 fault\n"},
		{"maildir in the way", `"maildir:mail"`, `"maildir:config.toml"`, "blockd serve: smtp.upstream: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			config := strings.Replace(anyPorts, tt.old, tt.new, 1)
			if config == anyPorts {
				t.Fatal("the test changes nothing")
			}
			writeFile(t, dir, "config.toml", config)
			writeFile(t, dir, "lists/a.txt", "bulk.example\n")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var stderr bytes.Buffer
			code := runContext(ctx, []string{"serve", "-c", dir + "/config.toml"}, nil, io.Discard, &stderr)
			var said string // what is no log line
			for line := range strings.Lines(strings.ReplaceAll(stderr.String(), dir, "DIR")) {
				if line[0] != '{' {
					said += line
				}
			}
			testkit.Got(code, said)(t, "exit", 1, tt.want+"…")
		})
	}
}
