package main

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
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
