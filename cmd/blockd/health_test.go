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

// The health door says 200 or 503 and nothing else, whoever asks, and by whichever token the HTTP door is closed.
func TestServeAnswersProbes(t *testing.T) {
	dir := healthConfig(t, "listen = \"127.0.0.1:0\"\nsocket = \"none\"", "absent.txt")
	d := serveIn(t, dir, "smtp", "http", "health")
	d.wait(t, "upstream ready")
	address := d.wait(t, "health listens")["address"].(string)
	for _, path := range []string{"/readyz", "/livez"} {
		resp := testkit.Value(http.Get("http://" + address + path))(t)
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.ContentLength != int64(len("ok\n")) {
			t.Errorf("%s: %d, %d octets", path, resp.StatusCode, resp.ContentLength)
		}
	}
	if _, body := d.get(t, "/readyz"); !strings.HasPrefix(body, "degraded: 1 of 2 lists") {
		t.Errorf("the test wants a daemon that is degraded, have %q", body)
	}
}

func TestHealthIsOneLine(t *testing.T) {
	dir := healthConfig(t, "listen = \"\"\nsocket = \"auto\"", "absent.txt")
	d := serveIn(t, dir, "smtp", "health")
	d.wait(t, "upstream ready")
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
	if code := d.end(t); code != 0 {
		t.Fatalf("serve: %d", code)
	}
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
	for _, door := range []string{"milter", "policy"} {
		address := d.wait(t, door+" listens")["address"].(string)
		for range 3 {
			conn := testkit.Value(net.Dial("tcp", address))(t)
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Errorf("%s: not turned away", door)
			}
			conn.Close()
		}
	}
	for _, key := range []string{"milter.allow_from", "postfix.allow_from"} {
		table, _, _ := strings.Cut(key, ".")
		if record := d.wait(t, table+" client turned away: it is in no network of "+key); record["network"] != "127.0.0.1" {
			t.Errorf("logged: %v", record)
		}
		testkit.Equal(t, key, strings.Count(d.log.String(), table+" client turned away"), 1)
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
