package main

import (
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

	"blockd/internal/testkit"
)

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
