package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/reload"
)

// healthConfig has a list that serves, one that has never loaded where second is "absent.txt", and both doors that can be asked.
func healthConfig(t *testing.T, httpDoors, second string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	writeFile(t, dir, "a.txt", "bulk.example\n")
	writeFile(t, dir, "config.toml", `
[log]
format = "json"
[smtp]
listen = "127.0.0.1:0"
upstream = "maildir:mail"
[milter]
listen = ""
[postfix]
policy_listen = ""
[health]
listen = "127.0.0.1:0"
[http]
`+httpDoors+`
[[list]]
name = "a"
path = "a.txt"
[[list]]
name = "b"
path = "`+second+`"
`)
	return dir
}

// The command has a line, and the health door 200 or 503 and nothing else, whoever asks.
func TestHealthIsOneLine(t *testing.T) {
	dir := healthConfig(t, "listen = \"\"\nsocket = \"auto\"", "absent.txt")
	d := serveIn(t, dir, "smtp", "health")
	d.wait(t, "upstream ready")
	for _, path := range []string{"/readyz", "/livez"} {
		resp := testkit.Value(http.Get("http://" + d.wait(t, "health listens")["address"].(string) + path))(t)
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.ContentLength != int64(len("ok\n")) {
			t.Errorf("%s: %d, %d octets", path, resp.StatusCode, resp.ContentLength)
		}
	}
	file := filepath.Join(dir, "config.toml")
	code, out, stderr := blockd(t, "", "health", "-c", file)
	if code != 0 || !strings.HasPrefix(out, "degraded: 1 of 2 lists filter; ") || strings.Count(out, "\n") != 1 || stderr != "" {
		t.Errorf("degraded: %d, %q, %q", code, out, stderr)
	}
	if code, out, _ := blockd(t, "", "health", "--strict", "-c", file); code != 1 || !strings.HasPrefix(out, "degraded") {
		t.Errorf("degraded, with --strict: %d, %q", code, out)
	}
	says(t, exitUsage, "--timeout", "health", "--timeout", "0s", "-c", file)
}

// Where [http] opens no door, or does not answer, the health door tells.
func TestHealthAsksTheHealthDoor(t *testing.T) {
	dir := healthConfig(t, "listen = \"\"\nsocket = \"none\"", "a.txt")
	file := filepath.Join(dir, "config.toml")
	d := serveIn(t, dir, "smtp", "health")
	d.wait(t, "upstream ready")
	_, port, err := net.SplitHostPort(d.wait(t, "health listens")["address"].(string))
	testkit.Must(t, err)
	text := strings.Replace(string(testkit.Read(t, file)), "[health]\nlisten = \"127.0.0.1:0\"", "[health]\nlisten = \":"+port+"\"", 1)
	asked := writeFile(t, dir, "asked.toml", text)
	if code, out, stderr := blockd(t, "", "health", "-c", asked); code != 0 || out != "ok\n" {
		t.Errorf("by the health door: %d, %q, %q", code, out, stderr)
	}
	says(t, 1, "opens no door", "health", "--strict", "-c", asked)
	testkit.MustEqual(t, "serve", d.end(t), 0)
	says(t, 1, "no daemon answers at 127.0.0.1:"+port, "health", "-c", asked)
}

// A daemon that takes the connection and never answers is not healthy, and the probe ends.
func TestHealthHasADeadline(t *testing.T) {
	l := testkit.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	dir := t.TempDir()
	file := writeFile(t, dir, "config.toml", "[http]\nlisten = \""+l.Addr().String()+"\"\nsocket = \"none\"\n")
	says(t, 1, "no answer in 50ms", "health", "--timeout", "50ms", "-c", file)
}

// A client that allow_from turns away is told in the log, in /readyz, by doctor, and by the line of health while all else is well.
func TestATurnedAwayClientIsTold(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.txt", "bulk.example\n")
	file := writeFile(t, dir, "config.toml", `
[log]
format = "json"
[smtp]
listen = ""
[milter]
listen = "127.0.0.1:0"
allow_from = ["192.0.2.0/24"]
[postfix]
policy_listen = "127.0.0.1:0"
allow_from = ["192.0.2.0/24"]
[health]
listen = "127.0.0.1:0"
[http]
listen = "127.0.0.1:0"
[[list]]
name = "a"
path = "a.txt"
`)
	d := serveIn(t, dir, "http", "milter", "policy")
	for key, door := range map[string]string{"milter.allow_from": "milter", "postfix.allow_from": "policy"} {
		for range 3 {
			conn := testkit.Value(net.Dial("tcp", d.wait(t, door+" listens")["address"].(string)))(t)
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Errorf("%s: not turned away", door)
			}
			conn.Close()
		}
		table, _, _ := strings.Cut(key, ".")
		testkit.Equal(t, key, d.wait(t, table+" client turned away: it is in no network of "+key)["network"], any("127.0.0.1"))
		status, body := d.get(t, "/readyz")
		want := key + ": 127.0.0.1 was turned away 3 times, last at "
		if status != 200 || !strings.HasPrefix(body, "ok\n") || !strings.Contains(body, "\n"+want) {
			t.Errorf("/readyz: %d %q", status, body)
		}
		if code, out, _ := blockd(t, "", "doctor", "--json", "-c", file); code == 0 || !strings.Contains(out, want) || !strings.Contains(out, `add \"127.0.0.1\" to `+key) {
			t.Errorf("doctor: %d\n%s", code, out)
		} else if !strings.Contains(out, key+" keeps this machine out") {
			t.Errorf("doctor knocks at a door that turns it away:\n%s", out)
		}
	}
}

// regulars has the daemon in dir know so many domains that wrote lately, each of a client
// network of its own.
func regulars(t *testing.T, dir string, n int) {
	t.Helper()
	recent := reload.NewRecent(10_000)
	for i := range n {
		sender := testkit.Value(addr.Parse(fmt.Sprintf("anna@regular%d.example", i)))(t)
		recent.Add(sender, netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 9}))
	}
	writeFile(t, dir, "var/.keep", "")
	testkit.Must(t, recent.Save(filepath.Join(dir, "var", "a.bdx"+reload.RecentSuffix)))
}

// TestPoisonedEntriesAreHeldBack: entries that would refuse those who write do not act,
// the rest of the list does, through restarts, until a person accepts them.
func TestPoisonedEntriesAreHeldBack(t *testing.T) {
	dir := t.TempDir()
	regulars(t, dir, 200)
	writeFile(t, dir, "config.toml", strings.Replace(anyPorts, "[index]\n", "[index]\npoll = \"1s\"\n", 1))
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "upstream ready")
	writeFile(t, dir, "lists/a.txt", "bulk.example\nregular0.example\nregular1.example\nregular2.example\nnew.example\n")
	d.waitBlocked(t, "x@new.example", true)
	remark := "list bad: 3 held back: they would refuse senders who wrote lately; see blockd lint --held bad"
	check := func(when string) {
		t.Helper()
		if status, body := d.get(t, "/readyz"); status != 200 || body != "ok\n"+remark+"\n" {
			t.Errorf("%s: /readyz = %d %s", when, status, body)
		}
		for i := range 3 {
			if d.blocks(t, fmt.Sprintf("anna@regular%d.example", i)) {
				t.Errorf("%s: regular%d.example is refused", when, i)
			}
		}
		if _, body := d.get(t, "/v1/lists"); !strings.Contains(body, `"held":3`) || !strings.Contains(body, `"state":"held"`) {
			t.Errorf("%s: /v1/lists: %s", when, body)
		}
		if _, body := d.get(t, "/metrics"); !strings.Contains(body, "blockd_list_held_entries{list=\"bad\"} 3\n") {
			t.Errorf("%s: the metric is missing", when)
		}
		prints(t, 1, "clear", "check", "-c", filepath.Join(dir, "config.toml"), "anna@regular0.example")
		prints(t, 0, "3 held back", "lists", "-i", filepath.Join(dir, "var/a.bdx"))
		code, out, errs := blockd(t, "", "lint", "--held", "-c", filepath.Join(dir, "config.toml"), "bad")
		for i, want := range []string{"regular0.example", "regular1.example", "regular2.example"} {
			if code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "lists/a.txt") || !strings.Contains(out, fmt.Sprintf("anna@regular%d.example", i)) {
				t.Errorf("%s: lint --held ends with %d: %s%s", when, code, out, errs)
			}
		}
	}
	check("after the load")
	if d.log.find("entries held back") == nil {
		t.Errorf("nothing in the log:\n%s", d.log)
	}
	testkit.MustEqual(t, "exit", d.end(t), 0)
	d = serveIn(t, dir, "smtp", "http")
	d.wait(t, "upstream ready")
	check("after a restart")

	says(t, 2, `no list "bed", did you mean bad?`, "compile", "-c", filepath.Join(dir, "config.toml"), "--accept", "bed")
	runs(t, "compile", "-c", filepath.Join(dir, "config.toml"), "--accept", "bad")
	for i := range 3 {
		d.waitBlocked(t, fmt.Sprintf("anna@regular%d.example", i), true)
	}
	testkit.Eventually(t, "the remark to go", func() bool { _, body := d.get(t, "/readyz"); return body == "ok\n" })
	if code, out, _ := blockd(t, "", "lint", "--held", "-c", filepath.Join(dir, "config.toml")); code != 0 || out != "nothing is held back\n" {
		t.Errorf("lint --held ends with %d: %s", code, out)
	}
}
