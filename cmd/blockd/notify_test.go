package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// A load that is refused rings, by the name and the text that /readyz has, and again when all is well. A first try that gets 500
// is tried again.
func TestNotify(t *testing.T) {
	t.Parallel() // it waits for what has to hold for ten seconds
	type event struct {
		Event, Host, Version, ID string
		Problems                 []struct{ Name, List, Text string }
		signed                   bool
	}
	events := make(chan event, 16)
	first := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e := event{signed: r.Header.Get("X-Blockd-Signature") != ""}
		if err := json.Unmarshal(body, &e); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if first && e.Event == "degraded" {
			first = false
			http.Error(w, "not now", http.StatusInternalServerError)
			return
		}
		events <- e
		io.WriteString(w, "noted\n")
	}))
	defer srv.Close()
	dir := t.TempDir()
	file := writeFile(t, dir, "config.toml", anyPorts+"[notify]\nurl = \""+srv.URL+"/hook\"\nsecret_file = \"secret\"\n")
	list := writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	writeFile(t, dir, "secret", "0123456789abcdef\n")

	if code, out, stderr := blockd(t, "", "notify", "--test", "-c", file); code != 0 || !strings.HasPrefix(out, "delivered: 200 OK in ") || !strings.HasSuffix(out, "noted\n") {
		t.Errorf("notify --test: %d, %q, %q", code, out, stderr)
	}
	if e := <-events; e.Event != "test" || !e.signed {
		t.Errorf("test: %+v", e)
	}

	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "lists swapped in")
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	e := <-events
	_, ready := d.get(t, "/readyz")
	if e.Event != "degraded" || !e.signed || len(e.Problems) != 1 || e.Problems[0].Name != "list_refused" || e.Problems[0].List != "bad" || !strings.Contains(ready, e.Problems[0].Text+"\n") {
		t.Errorf("%+v; /readyz:\n%s", e, ready)
	}
	d.wait(t, "notify.url told")
	d.end(t)
	if _, err := os.Stat(filepath.Join(dir, "var", "a.bdx.notify")); err != nil {
		t.Error(err)
	}

	d = serveIn(t, dir, "smtp", "http") // degraded still, which was told
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	if e := <-events; e.Event != "well" || len(e.Problems) != 0 {
		t.Errorf("%+v", e)
	}
	if _, metrics := d.get(t, "/metrics"); !strings.Contains(metrics, "\nblockd_notify_undelivered 0\n") {
		t.Error("no metric blockd_notify_undelivered")
	}
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
