package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"blockd/internal/testkit"
	"blockd/records/audit"
)

// What is changed without a daemon is in the journal too, and it tells where somebody has altered it.
func TestAuditWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "config.toml", strings.Replace(anyPorts, "[http]\n", "[http]\ntokens = \"tokens\"\n", 1))
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	run := func(code int, want, args string) string {
		t.Helper()
		words := strings.Fields(args)
		got, out, stderr := blockd(t, "", append([]string{words[0]}, append(words[1:], "-c", file)...)...)
		if got != code || !strings.Contains(out+stderr, want) {
			t.Errorf("%s: %d, %q, %q; want %d, %q", args, got, out, stderr, code, want)
		}
		return out
	}
	run(exitFault, "nothing found", "audit")
	run(0, "whole: there is no line yet", "audit --verify")
	run(0, "", "add --why phishing b.example")
	run(0, "", "remove --why mistake b.example")
	run(0, "", "token new --name desk --write")
	run(0, "", "token revoke desk")
	run(0, "", "pause bad --why it.refuses.the.bank")
	run(0, "", "resume bad")
	run(0, "", "compile --accept")
	out := run(0, "list.resume", "audit")
	for i, want := range []string{"list.accept", "list.resume", "list.pause", "token.revoke", "token.add", "entry.remove", "entry.add"} {
		if lines := strings.Split(out, "\n"); len(lines) < 8 || !strings.Contains(lines[i+1], want) {
			t.Errorf("line %d of %q, want %s", i+1, out, want)
		}
	}
	run(0, "mistake", "audit --action entry.remove")
	run(0, "token.add", "audit --text DESK --since 1h --limit 5")
	run(exitFault, "nothing found", "audit --until 1h")
	run(exitUsage, "want 1 to 1000", "audit --limit 0")
	run(exitUsage, "--has is for --verify", "audit --has 0123")
	run(exitUsage, "want the 64 digits", "audit --verify --has 0123")
	var line struct{ Time, By, Action, Subject, Why, Hash, Previous string }
	first, _, _ := strings.Cut(run(0, "", "audit --json"), "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || line.Action != "list.accept" || len(line.Hash) != 64 || len(line.Previous) != 64 || line.By == "" || line.Time == "" {
		t.Errorf("%s: %v", first, err)
	}
	run(0, "whole: 7 lines from ", "audit --verify")
	run(0, line.Hash, "audit --verify --has "+line.Previous)
	run(exitFault, "an end was cut off", "audit --verify --has "+strings.Repeat("0", 64))

	files := testkit.Value(filepath.Glob(filepath.Join(dir, "var", "*.audit", "*.jsonl")))(t)
	testkit.MustEqual(t, "files", len(files), 1)
	text := testkit.Value(os.ReadFile(files[0]))(t)
	testkit.Must(t, os.WriteFile(files[0], []byte(strings.Replace(string(text), "phishing", "innocent", 1)), 0o600))
	run(exitFault, "00000001.jsonl:1: the chain is broken: its hash is not that of its text", "audit --verify")
	run(exitFault, `"whole":false`, "audit --verify --json")
	run(0, "left out 1 damaged line; --verify says where", "audit")
}

// commandLines has the actions of the journal that each command can write; none = it changes nothing that the journal is about.
// A new command wants a row.
var commandLines = map[string][]string{
	"add": {audit.EntryAdd, audit.EntryChange}, "remove": {audit.EntryRemove}, "import": {audit.EntryAdd}, "junk": {audit.EntryAdd},
	"pause": {audit.ListPause}, "resume": {audit.ListResume}, "rollback": {audit.ListRollback}, "adopt": {audit.ListAdopt}, "compile": {audit.ListAccept},
	"token new": {audit.TokenAdd}, "token rotate": {audit.TokenRotate}, "token revoke": {audit.TokenRevoke}, "requests grant": {audit.RequestGrant}, "requests decline": {audit.RequestDecline},
	"proposals adopt": {audit.ProposalAdopt}, "proposals decline": {audit.ProposalDecline}, "complaints": {audit.ComplaintTake},
	"quarantine release": {audit.QuarantineRelease}, "quarantine purge": {audit.QuarantineRemove}, "forget": {audit.PersonForget}, "learn": {audit.CorrespondentsAdd},
	"report": {audit.ReportSend}, "publish": {audit.SnapshotPublish}, "publish halt": {audit.SnapshotHalt}, "fleet pin": {audit.FleetPin}, "fleet unpin": {audit.FleetUnpin},
	"live offer": {audit.LiveOffer}, "live dismiss": {audit.LiveDismiss}, "serve": {audit.Configuration}, "reload": {audit.Configuration},

	"audit": nil, "catalogue": nil, "check": nil, "compare": nil, "config": nil, "diff": nil, "doctor": nil, "export": nil, "generations": nil, "health": nil,
	"history": nil, "history top": nil, "lint": nil, "list": nil, "lists": nil, "live status": nil, "live lost": nil, "notify": nil, "proposals": nil,
	"quarantine list": nil, "quarantine show": nil, "replay": nil, "requests": nil, "source ddl": nil, "source lua": nil, "source test": nil, "token list": nil, "version": nil,
}

// TestEveryCommandHasItsActions: all commands are known here, and each action of the journal is that of a command.
func TestEveryCommandHasItsActions(t *testing.T) {
	var walk func(cmd *cobra.Command, name string)
	seen := map[string]bool{}
	walk = func(cmd *cobra.Command, name string) {
		if cmd.Hidden {
			return
		}
		if cmd.Runnable() && name != "" {
			if seen[name] = true; !named(name) {
				t.Errorf("blockd %s: no line of the journal is wanted for it", name)
			}
		}
		for _, c := range cmd.Commands() {
			walk(c, strings.TrimSpace(name+" "+c.Name()))
		}
	}
	walk(newRoot(), "")
	for name := range commandLines {
		if !seen[name] {
			t.Errorf("blockd %s is gone", name)
		}
	}
}

// named reports whether a command has a row. Those that only write the file that they are told to have none.
func named(name string) bool {
	first, _, _ := strings.Cut(name, " ")
	switch {
	case first == "filter", first == "completion", first == "help", name == "init", name == "subscribe", name == "publish keygen", name == "fleet", name == "fleet turn":
		return true
	case name == "live", name == "quarantine", name == "source", name == "token": // they show their commands
		return true
	}
	_, ok := commandLines[name]
	return ok
}

// naming returns the files below a folder that name an address, in any spelling and with any tag. It leaves out lists
// that people have written, delivered mail, and the journal of changes, whose lines stay.
func naming(t *testing.T, dir, local, domain string) (all []string) {
	t.Helper()
	spelled := regexp.MustCompile(`(?i)"?` + local + `(\+\w+)?"?@` + regexp.QuoteMeta(domain))
	err := filepath.WalkDir(dir, func(path string, f fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case os.IsNotExist(err):
			return nil // a file that was replaced meanwhile
		case err != nil:
			return err
		case name == "var/a.bdx.audit" || name == "written" || name == "mail":
			return filepath.SkipDir
		case f.Type().IsRegular():
			if text, _ := os.ReadFile(path); spelled.Match(text) {
				all = append(all, name)
			}
		}
		return nil
	})
	testkit.Must(t, err)
	return all
}

// TestForgetEverywhere has one person in each store, by mail, questions and commands, and another one: the first is forgotten by a
// daemon, the second by the command alone.
func TestForgetEverywhere(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "config.toml", strings.Replace(anyPorts, "[http]", "quarantine = \"aside\"\n[http]", 1)+"[receipts]\nlisten = \"127.0.0.1:0\"\n[report]\nto = \"postmaster@here.example\"\n"+
		"[[list]]\nname = \"written\"\npath = \"written/bad.txt\"\n[[list]]\nname = \"aside\"\npath = \"written/aside.txt\"\non_match = \"quarantine\"\n[[list]]\nname = \"exact\"\npath = \"written/exact.txt\"\n")
	writeFile(t, dir, "lists/a.txt", "nobody.example\n")
	writeFile(t, dir, "written/bad.txt", "bulk.example\n")
	writeFile(t, dir, "written/aside.txt", "grey.example\n")
	writeFile(t, dir, "written/exact.txt", "carl@there.example\nhugo@there.example\n")
	must := func(stdin string, args ...string) string {
		t.Helper()
		code, out, stderr := blockd(t, stdin, slices.Insert(args, 1, "-c", file)...)
		testkit.MustEqual(t, fmt.Sprintf("%q: %s%s", args, out, stderr), code, 0)
		return out
	}
	people := []struct{ foreign, own, listed string }{{"bob", "anna", "carl"}, {"bill", "nora", "hugo"}}
	loads := ""
	for i, p := range people {
		loads += fmt.Sprintf(`,"l%d":{"list":"l%d","refused":1,"why":"would lift refusals: %s@There.example -> %s+x@here.example"}`, i, i, p.foreign, p.own)
	}
	writeFile(t, dir, "var/a.bdx.report", fmt.Sprintf(`{"report_version":1,"since":%q,"loads":{%s}}`, time.Now().UTC().Format(time.RFC3339), loads[1:]))
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "upstream ready")
	receipts := d.wait(t, "receipts listens")["address"].(string)
	for _, p := range people {
		foreign, own := p.foreign+"@there.example", p.own+"@here.example"
		d.send(t, strings.ToUpper(p.foreign)+"@There.EXAMPLE", `"`+p.own+`"@here.example`) // sent lately
		log := strings.ReplaceAll(`HEAD postfix/smtpd[1]: 4ABC123: client=pc[192.0.2.1], sasl_method=PLAIN, sasl_username=anna
HEAD postfix/qmgr[1]: 4ABC123: from=<anna@here.example>, size=1, nrcpt=1 (queue active)
HEAD postfix/smtp[1]: 4ABC123: to=<`+foreign+`>, relay=x, dsn=2.0.0, status=sent (250)
`, "HEAD", time.Now().Format("Jan _2 15:04:05")+" mail")
		learned := must(log, "learn", "--maillog", "-")
		if !strings.HasPrefix(learned, "learned from 1 message of users to 1 recipient; ") {
			t.Fatal(learned)
		}
		must("", "add", "--why", "ticket 5", foreign)
		must("", "add", "--owner", own, "spam.example")
		must("", "add", "--owner", "other@here.example", foreign)
		refusal := d.send(t, foreign, own)
		ref := regexp.MustCompile(`ref ([0-9a-z]{16})`).FindStringSubmatch(refusal)
		if ref == nil {
			t.Fatalf("refused: %q", refusal)
		}
		testkit.Eventually(t, "the request to be taken", func() bool {
			resp, err := http.PostForm("http://"+receipts+"/r/"+ref[1], url.Values{"note": {"I am " + foreign}})
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
		d.send(t, "x@spam.example", p.own+"+shop@here.example")
		d.send(t, "x@grey.example", strings.ToUpper(p.own)+"@here.example")
		d.send(t, p.listed+"@there.example", own)
	}
	d.end(t) // what is in memory goes to the disk
	writeFile(t, dir, "written/bad.txt", "bulk.example\nmore.example\n")
	d = serveIn(t, dir, "smtp", "http") // and builds an index, with the live entries
	testkit.Eventually(t, "the index to have the live entries", func() bool {
		return strings.Contains(strings.Join(naming(t, dir, "bob", "there.example"), " "), "var/a.bdx.live/folded/live.list")
	})
	for _, name := range []string{"history", "live", "receipts", "recent", "hits", "report", "cache"} {
		testkit.Has(t, strings.Join(naming(t, dir, "bob", "there.example"), " "), "var/a.bdx."+name)
	}

	forget := func(p struct{ foreign, own, listed string }, when string) {
		t.Helper()
		for _, tt := range []struct {
			args string
			want []string
		}{
			{p.foreign + "@there.example", []string{"erased: ", " decisions, 1 request, the correspondent, the recent sender", "hit count", "1 letter's note",
				"remains in entries, 2: live entries that people have made for the address; --entries removes them, or blockd remove ", "remains in audit, "}},
			{"--entries " + strings.ToUpper(p.foreign) + "@THERE.example", []string{"erased: no decisions, no requests, 2 other live entries"}},
			{p.own + "@here.example", []string{"1 own live entry", "remains in quarantine, 1: messages from or to the address", "remains in audit, "}},
			{`--quarantine "` + p.own + `"@here.example`, []string{"1 quarantined message"}},
			{p.listed + "@there.example", []string{"remains in list exact, 1: ", "written/exact.txt:", " has it"}},
		} {
			out := must("", append([]string{"forget"}, strings.Fields(tt.args)...)...)
			testkit.Has(t, out, tt.want...)
		}
	}
	nowhere := func(p struct{ foreign, own, listed string }, when string) {
		t.Helper()
		testkit.Eventually(t, when+": no file to name the person", func() bool {
			left := append(naming(t, dir, p.foreign, "there.example"), naming(t, dir, p.own, "here.example")...)
			if len(left) > 0 {
				t.Logf("left in %v", left)
			}
			return len(left) == 0
		})
	}
	forget(people[0], "a daemon")
	nowhere(people[0], "a daemon")
	testkit.Begins(t, "an entry that was removed", d.send(t, "bob@there.example", "nora@here.example"), "250")
	if len(naming(t, dir, "bill", "there.example")) == 0 {
		t.Error("another person was forgotten too")
	}
	if out := must("", "audit", "--json"); !strings.Contains(out, `"person.forget"`) || strings.Contains(out, `"entry.remove","subject":"block bob`) {
		t.Errorf("the journal:\n%s", out)
	}
	must("", "forget", "bob@there.example") // that was mail of the person
	d.end(t)
	nowhere(people[0], "after the end")

	testkit.Begins(t, "of nobody, as JSON", must("", "forget", "--json", "nobody@there.example"), `{"correspondent":false,"recent":false,"held":0,"decisions":0,`)
	testkit.Has(t, must("", "forget", "nobody@there.example"), "nothing was kept about this address")
	forget(people[1], "no daemon")
	serveIn(t, dir, "smtp", "http") // the index follows
	nowhere(people[1], "the next daemon")
}
