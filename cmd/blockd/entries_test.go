package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"blockd/doors/httpapi"
	"blockd/doors/receipt"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/records/history"
)

// The command that undoes a removal is one, for entries that look like options too.
func TestUndoIsACommand(t *testing.T) {
	for _, tt := range []struct {
		entry  httpapi.LiveEntry
		config string
		want   string
	}{
		{httpapi.LiveEntry{Entry: "x@y.example", Action: "block", Author: "ann"}, "", "blockd add x@y.example --author ann"},
		{httpapi.LiveEntry{Entry: "-x@y.example", Action: "allow", Author: "ann"}, "", "blockd add --action allow --author ann -- -x@y.example"},
		{httpapi.LiveEntry{Entry: "--force@y.example", Action: "block"}, "", "blockd add -- --force@y.example"},
		{httpapi.LiveEntry{Entry: "it's@y.example", Action: "block"}, "", `blockd add 'it'\''s@y.example'`},
		{httpapi.LiveEntry{Entry: "x@y.example", Action: "block"}, "/etc/blockd/mx 2.toml", `blockd add -c '/etc/blockd/mx 2.toml' x@y.example`},
	} {
		testkit.Equal(t, fmt.Sprintf("undo(%s)", tt.entry.Entry), undo(&tt.entry, tt.config), tt.want)
	}
}

// With unverified_allow = "ignore" an exception for a sender overrides nothing. Who adds
// one hears of it; one for a client counts.
func TestExceptionThatOverridesNothingIsToldOf(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	for name, text := range map[string]string{
		"l.txt":       "x.example\n",
		"config.toml": "[[list]]\nname = \"l\"\npath = \"l.txt\"\n[index]\npath = \"x.bdx\"\n[smtp]\nupstream = \"maildir:mail\"\n[auth]\nunverified_allow = \"ignore\"\n",
	} {
		testkit.Write(t, filepath.Join(dir, name), text)
	}
	for _, tt := range []struct {
		args []string
		told bool
	}{
		{[]string{"--action", "allow", "friend@x.example"}, true},
		{[]string{"--action", "allow", "192.0.2.1"}, false},
		{[]string{"foe@x.example"}, false},
	} {
		code, _, stderr := blockd(t, "", append([]string{"add", "-c", config}, tt.args...)...)
		if told := strings.Contains(stderr, `unverified_allow is "ignore"`); told != tt.told || code != 0 {
			t.Errorf("%q = %d: told %t, want %t: %s", tt.args, code, told, tt.told, stderr)
		}
	}
}

// Entries that block or free more than their author can have meant need --force.
func TestAddRefusesWhatNobodyMeans(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "l.txt", "x.example\n")
	config := writeFile(t, dir, "config.toml", "[[list]]\nname = \"l\"\npath = \"l.txt\"\n[index]\npath = \"x.bdx\"\n[smtp]\nupstream = \"maildir:mail\"\n"+
		"trusted = [\"10.1.0.0/16\", \"fd00::/8\"]\n[auth]\nclients = [\"192.168.7.0/24\"]\n[milter]\nallow_from = [\"172.16.3.4\"]\n")
	for _, tt := range []struct{ entry, action, says string }{
		{"127.0.0.1", "block", "covers 127.0.0.0/8, this machine itself"},
		{"::1", "block", "covers ::1/128, this machine itself"},
		{"10.0.0.0/8", "block", "covers 10.1.0.0/16, which is in smtp.trusted"},
		{"fd00::1", "block", "covers fd00::/8, which is in smtp.trusted"},
		{"192.168.7.9", "block", "covers 192.168.7.0/24, which is in auth.clients"},
		{"172.16.0.0/12", "block", "covers 172.16.3.4/32, which is in milter.allow_from"},
		{"10.2.0.0/16", "block", ""},
		{"10.1.2.3", "allow", ""},
		{"postmaster@", "block", "everybody's postmaster@"},
		{"ABUSE@", "block", "everybody's abuse@"},
		{"postmaster@bulk.example", "block", ""},
		{"abuse@", "allow", ""},
		{"com", "allow", "a single label: everybody's names are below it"},
		{"co.uk", "allow", "a public suffix"},
		{"gmail.com", "allow", "covers the protected domain gmail.com as a whole"},
		{"anna@gmail.com", "allow", ""},
		{"2001::/18", "allow", "a network wider than IPv4 /8 or IPv6 /19"},
	} {
		t.Run(tt.action+" "+tt.entry, func(t *testing.T) {
			code, _, errs := blockd(t, "", "add", "-c", config, "--action", tt.action, tt.entry)
			if tt.says == "" {
				testkit.MustEqual(t, errs, code, 0)
				return
			}
			testkit.Got(code, errs, strings.Count(errs, "\n"))(t, "exit", 1, "…"+tt.says+"…--force…", 1)
			runs(t, "add", "-c", config, "--force", "--action", tt.action, tt.entry)
		})
	}
	// What no entry may be, --force does not help: nothing says so.
	if code, _, errs := blockd(t, "", "add", "-c", config, "--action", "allow", "0.0.0.0/1"); code != 1 || strings.Contains(errs, "--force") {
		t.Errorf("half of all: %d, %s", code, errs)
	}
}

// Who adds many entries where no daemon runs leaves a snapshot, so that the next start reads no change.
func TestEntriesAddedWithoutADaemonAreTidied(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	testkit.Write(t, filepath.Join(dir, "l.txt"), "x.example\n")
	testkit.Write(t, config, "[[list]]\nname = \"l\"\npath = \"l.txt\"\n[index]\npath = \"x.bdx\"\n[smtp]\nupstream = \"maildir:mail\"\n")
	var all []string
	for i := range 1201 {
		all = append(all, fmt.Sprintf("spam%d@bulk.example", i))
	}
	runs(t, append([]string{"add", "-c", config}, all...)...)
	if journal := testkit.Read(t, filepath.Join(dir, "x.bdx.live/journal")); strings.Count(string(journal), "\n") > 10 {
		t.Errorf("the journal has %d lines", strings.Count(string(journal), "\n"))
	}
	set := testkit.Value(live.Read(filepath.Join(dir, "x.bdx.live")))(t)
	testkit.Equal(t, "entries", set.Len(), 1201)
	runs(t, append([]string{"remove", "-c", config}, all[:701]...)...)
	testkit.Equal(t, "entries after a removal", testkit.Value(live.Read(filepath.Join(dir, "x.bdx.live")))(t).Len(), 500)
}

// Moved to Junk, the sender is blocked for this user alone; moved back, not any more. What the user has made himself stays.
func TestJunk(t *testing.T) {
	dir := t.TempDir()
	path := testkit.Write(t, filepath.Join(dir, "config.toml"), "[live]\nfolder = \"live\"\n")
	const mail = "Return-Path: <promo@bulk.example>\nFrom: My Bank <info@bank.example>\n\nhello\n"
	goes(t, path, []step{
		{mail, "junk --recipient Anna+shop@here.example", 0, "added: block promo@bulk.example for anna@here.example until "},
		{mail, "junk --recipient anna@here.example --undo", 0, "removed: block promo@bulk.example"},
		{mail, "junk --recipient anna@here.example --ham", 0, "promo@bulk.example was not blocked"},
		{"Return-Path: <bob@here.example>\n\n", "junk --recipient anna@here.example", 3, "of your own domain; if that is meant, say --force"},
		{"Return-Path: <bob@here.example>\n\n", "junk --recipient anna@here.example --force", 0, "added: block bob@here.example for anna@here.example"},
		{"Return-Path: <bob@here.example>\n\n", "junk --recipient anna@here.example --undo", 0, "removed: block bob@here.example"},
		{"Return-Path: <someone@gmail.com>\n\n", "junk --recipient anna@here.example", 3, "at a protected domain"},
		{"Return-Path: <>\n\n", "junk --recipient anna@here.example --json", 1, `"result":"refused"`},
		{strings.ReplaceAll(mail, "hello", strings.Repeat("hello\n", 1<<18)), "junk --recipient anna@here.example --for 1h", 0, "added: block promo@bulk.example"},
		{mail, "junk --recipient anna@here.example --undo", 0, "removed: block"},
		{mail, "junk --recipient here.example", 2, "want --recipient"},
		{mail, "junk --recipient anna@here.example --for never", 2, "want how long"},
		{"", "add promo@bulk.example --owner anna@here.example --action allow", 0, "added: allow promo@bulk.example for anna@here.example"},
		{mail, "junk --recipient anna@here.example", 1, "the user has an entry of his own, allow"},
		{"", "list --owner anna@here.example", 0, "promo@bulk.example"},
		{"", "list", 0, "no live entries"},
		{"", "remove promo@bulk.example --owner anna@here.example", 0, "undo: blockd add"},
	})
}

// Three users who agree make a proposal, which the journal of one file and no daemon show alike; complaints count only if the history bears them out.
func TestProposalsOfFiles(t *testing.T) {
	dir := t.TempDir()
	path := testkit.Write(t, filepath.Join(dir, "config.toml"), "[http]\nlisten = \"\"\n[live]\nfolder = \"live\"\n[junk]\nagree = 3\n")
	log := testkit.Value(history.Open(history.Settings{Folder: filepath.Join(dir, "var/blockd.bdx.history"), Max: history.MinMax, Keep: time.Hour}))(t)
	log.Add(history.Record{Time: time.Now(), Door: "smtp", Outcome: "accept", Verdict: "clear", Client: netip.MustParseAddr("192.0.2.7"), Sender: "promo@bulk.example", Recipient: "Carl@here.example"})
	log.Close()
	complaint := testkit.Write(t, filepath.Join(dir, "complaints/new/1"), arf("abuse", "promo@bulk.example", "carl@here.example", "192.0.2.7"))
	forged := testkit.Write(t, filepath.Join(dir, "forged"), arf("abuse", "promo@bulk.example", "dora@here.example", "192.0.2.7"))
	const mail = "Return-Path: <promo@bulk.example>\n\nhello\n"
	goes(t, path, []step{
		{"", "proposals", 1, "nothing found"},
		{mail, "junk --recipient anna@here.example", 0, "added"},
		{mail, "junk --recipient anna+shop@here.example --for 2d", 0, "replaced"},
		{mail, "junk --recipient bob@here.example", 0, "added"},
		{"", "proposals", 1, "nothing found"},
		{"", "complaints " + forged, 1, "forged: nothing is counted: the history has no accepted message from promo@bulk.example by 192.0.2.7 to dora@here.example"},
		{"hello", "complaints", 1, "standard input: refused: nothing is blocked: this is no message"},
		{"", "proposals", 1, "nothing found"},
		{"", "complaints " + filepath.Dir(filepath.Dir(complaint)), 0, "taken: promo@bulk.example, by carl@here.example"},
		{"", "complaints " + forged + "x " + filepath.Dir(filepath.Dir(complaint)), 2, "taken: promo@bulk.example, by carl@here.example"},
		{"", "complaints " + forged + "x " + filepath.Dir(filepath.Dir(complaint)), 2, "forgedx: no such file or directory"},
		{"", "complaints " + forged + "x " + filepath.Dir(filepath.Dir(complaint)), 2, "1 of 2 complaints could not be handed in"},
		{"", "proposals", 0, "promo@bulk.example  open   3      1        1"},
		{"", "proposals adopt promo@bulk.example", 1, "it decides about proposals, so start it"},
		{mail, "junk --recipient bob@here.example --undo", 0, "removed"},
		{"", "proposals", 1, "nothing found"},
		{"", "audit --action complaint.take", 0, "promo@bulk.example"},
		{"", "proposals --state odd", 2, "want open, adopted or declined"},
	})
}

// arf is a complaint in the Abuse Reporting Format.
func arf(kind, sender, user, client string) string {
	return strings.ReplaceAll(fmt.Sprintf(`From: <fbl@reports.example>
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary="b"

--b
Content-Type: text/plain

This is a complaint.

--b
Content-Type: message/feedback-report

Feedback-Type: %s
User-Agent: Test/1
Version: 1
Original-Mail-From: <%s>
Original-Rcpt-To: <%s>
Source-IP: %s

--b
Content-Type: message/rfc822

From: My Bank <info@bank.example>

hello
--b--
`, kind, sender, user, client), "\n", "\r\n")
}

// Without a daemon a pause is kept for the next one, and check knows of it.
func TestPauseWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "lists/a.txt", "bulk.example\n!boss@bulk.example\n")
	writeFile(t, dir, "lists/b.txt", "friend.example\n")
	writeFile(t, dir, "lists/c.txt", "trial.example\n")
	file := writeFile(t, dir, "config.toml", anyPorts+`
[[list]]
name = "b"
path = "lists/b.txt"
format = "plain"
action = "allow"

[[list]]
name = "c"
path = "lists/c.txt"
format = "plain"
mode = "shadow"
`)
	runs(t, "compile", "-c", file)
	goes(t, file, []step{
		{"", "check x@bulk.example", 0, "x@bulk.example\tblocked\tbad:1\tbulk.example"},
		{"", "resume bad", exitFault, `list "bad" is not paused`},
		{"", "pause", exitUsage, "want one list"},
		{"", "pause bad b", exitUsage, "want one list"},
		{"", "pause bad --for soon", exitUsage, "--for: want how long"},
		{"", "pause bad --for 32d", exitFault, "31 days at most"},
		{"", "pause none", exitFault, `there is no list "none"`},
		{"", "pause b", exitFault, "lets senders in and refuses nobody"},
		{"", "pause c", exitFault, "is in shadow mode and refuses nobody"},
		{"", "pause bad --for 2h", 0, "paused: bad does not count until"},
		{"", "check x@bulk.example", 1, "x@bulk.example\tclear\tbad:1\tbulk.example\tpaused"},
		{"", "check boss@bulk.example", 1, "boss@bulk.example\tallowed\tbad:2"},
		{"", "check --explain x@bulk.example", 1, "(paused: does not count)"},
		{"", "pause live", 0, "paused: live does not count until"},
		{"", "resume bad", 0, "resumed: bad counts"},
		{"", "check x@bulk.example", 0, "x@bulk.example\tblocked"},
	})
}

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
	cleo := refuse("cleo@bulk.example")
	look := func() int {
		resp := testkit.Value(http.Get(page + cleo))(t)
		resp.Body.Close()
		return resp.StatusCode
	}
	testkit.Equal(t, "a refusal", look(), 200)
	testkit.MustGot(blockd(t, "", "forget", "-c", file, "cleo@bulk.example"))(t, "forget", 0, "…1 decision…", "…")
	testkit.Equal(t, "a refusal of somebody who is forgotten", look(), 404) // not even the door remembers

	d.end(t)
	prints(t, 0, anna+"  granted", "requests", "--all", "-c", file) // both were asked within a second: either may be the first
	prints(t, 0, bert+"  declined", "requests", "--all", "-c", file)
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

// Root's commands change nothing where links lead that the daemon's user has put beside the index.
func TestRootsCommandsFollowNoLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wants root, who may be two users")
	}
	for _, name := range []string{".live", ".audit", ".live/journal", ".kept", ".cache"} {
		dir, elsewhere := t.TempDir(), t.TempDir()
		writeFile(t, dir, "a.txt", "bulk.example\n")
		config := writeFile(t, dir, "config.toml", "[index]\npath = \"x.bdx\"\n[smtp]\nlisten = \"\"\n[http]\nlisten = \"\"\n[[list]]\nname = \"a\"\npath = \"a.txt\"\n")
		target := elsewhere
		if strings.Contains(name, "/") {
			target = writeFile(t, elsewhere, "important", "")
			testkit.Must(t, os.Mkdir(filepath.Join(dir, "x.bdx.live"), 0o755))
		}
		link := filepath.Join(dir, "x.bdx"+name)
		testkit.Must(t, os.Symlink(target, link))
		testkit.Must(t, os.Lchown(link, 65533, 65533))
		for _, args := range [][]string{{"add", "-c", config, "other.example"}, {"compile", "-c", config}} {
			blockd(t, "", args...)
		}
		entries := testkit.Value(os.ReadDir(elsewhere))(t)
		for _, e := range entries {
			if text, _ := os.ReadFile(filepath.Join(elsewhere, e.Name())); e.Name() != "important" || len(text) > 0 {
				t.Errorf("by %s: %s was made: %q", name, e.Name(), text)
			}
		}
	}
}
