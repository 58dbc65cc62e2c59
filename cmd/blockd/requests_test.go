package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"blockd/doors/receipt"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

// Somebody is refused, reads why, asks, is let in, and the next mail arrives; others are declined. What is decided lasts.
func TestServeReceipts(t *testing.T) {
	dir := t.TempDir()
	text := strings.Replace(anyPorts, "[index]\n", "[receipts]\nlisten = \"127.0.0.1:0\"\n[refusal]\ncontact = \"https://lists.here.example/r/%ref\"\n[auth]\nresolver = \""+nameserver.Serve(t, nameserver.Zone{"TXT bulk.example": {"v=spf1 ip4:127.0.0.1 -all"}}).Address+"\"\n[index]\n", 1)
	file := writeFile(t, dir, "config.toml", text)
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	d := serveIn(t, dir, "smtp", "http", "receipts")
	d.wait(t, "upstream ready")
	page := "http://" + d.wait(t, "receipts listens")["address"].(string) + "/r/"
	refused := regexp.MustCompile(`^550 5\.7\.1 <[^>]*>: Sender address rejected: listed in bad \(ref ([0-9a-z]{16})\) https://lists\.here\.example/r/([0-9a-z]{16})$`)
	refuse := func(sender string) (ref string) {
		t.Helper()
		m := refused.FindStringSubmatch(d.send(t, sender, "you@here.example"))
		if m == nil || m[1] != m[2] {
			t.Fatalf("%s is refused with %q", sender, m)
		}
		return m[1]
	}
	ask := func(ref string) (status int, body string) {
		t.Helper()
		resp := testkit.Value(http.PostForm(page+ref, url.Values{"note": {"I am a person"}}))(t)
		defer resp.Body.Close()
		all := testkit.Value(io.ReadAll(resp.Body))(t)
		return resp.StatusCode, string(all)
	}
	says(t, exitFault, "nothing found", "requests", "-c", file)
	anna, bert := refuse("anna@bulk.example"), refuse("bert@bulk.example")
	for _, ref := range []string{anna, bert} {
		testkit.MustGot(ask(ref))(t, "asked", 200, "…Your request waits for a person…")
	}
	code, out, _ := blockd(t, "", "requests", "--json", "-c", file)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var q receipt.Request
	if code != 0 || len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &q) != nil || q.State != receipt.Open || q.List != "bad" || q.Note != "I am a person" || q.From != "" || q.Recipient != "you@here.example" {
		t.Errorf("requests: %d, %s", code, out)
	}
	testkit.MustGot(blockd(t, "", "requests", "grant", "--for", "10d", "-c", file, anna))(t, "grant", 0, "granted: anna@bulk.example may write until …, with spf or dkim as proof\n", "…")
	testkit.Begins(t, "let in", d.send(t, "anna@bulk.example", "you@here.example"), "250 ")
	refuse("bert@bulk.example")
	testkit.Got(blockd(t, "", "requests", "decline", "-c", file, bert))(t, "decline", 0, "declined: bert@bulk.example\n", "…")
	for _, args := range [][]string{{"grant", anna}, {"decline", anna}} {
		if code, _, stderr := blockd(t, "", "requests", args[0], "-c", file, args[1]); code == 0 || !strings.Contains(stderr, "the request is decided already: granted") {
			t.Errorf("%s once more: %d, %q", args[0], code, stderr)
		}
	}
	if code, _, stderr := blockd(t, "", "requests", "grant", "-c", file, "0123456789abcdef"); code == 0 || !strings.Contains(stderr, "there is no request with this reference") {
		t.Errorf("a reference of nobody: %d, %q", code, stderr)
	}
	if _, metrics := d.get(t, "/metrics"); !strings.Contains(metrics, "\nblockd_receipts_requests_total{result=\"taken\"} 2\n") || !strings.Contains(metrics, "\nblockd_receipts_requests_open 0\n") {
		t.Error("the metrics do not have the requests")
	}

	d.end(t)
	testkit.Got(blockd(t, "", "requests", "--all", "-c", file))(t, "without a daemon", 0, "…"+anna+"  granted…"+bert+"  declined…", "…")
	if code, _, stderr := blockd(t, "", "requests", "decline", "-c", file, bert); code == 0 || !strings.Contains(stderr, "start it") {
		t.Errorf("decided without a daemon: %d, %q", code, stderr)
	}
	d = serveIn(t, dir, "smtp", "http", "receipts")
	page = "http://" + d.wait(t, "receipts listens")["address"].(string) + "/r/"
	testkit.Got(ask(anna))(t, "behind a restart", 200, "…Your request was granted. Send your message again…")
	testkit.Got(ask(bert))(t, "behind a restart", 200, "…Your request was declined…")
}

func TestRequestsWords(t *testing.T) {
	goes(t, testkit.File(t, "config.toml", anyPorts), []step{
		{"", "requests", exitUsage, `receipts.listen is "", so that nobody can ask to be let in`},
		{"", "requests grant x", exitFault, `receipts.listen is ""`},
		{"", "requests grant", exitUsage, "want a reference"},
		{"", "requests grant --for soon x", exitUsage, "--for: want how long"},
		{"", "requests --state odd", exitUsage, `--state: want open, granted or declined, have "odd"`},
		{"", "requests --state open --all", exitUsage, "not both"},
	})
}
