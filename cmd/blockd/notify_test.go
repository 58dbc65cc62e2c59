package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

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
