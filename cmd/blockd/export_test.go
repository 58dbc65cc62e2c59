package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// exportLists are compiled into one index for the tests of export.
var exportLists = map[string]string{
	"first.txt":  "promo@bulk.test\noffers@\nbulk.test\n=alone.test\n.below.test\n!press@bulk.test\n!free.test\nunder.free.test\n198.51.100.7\n",
	"second.txt": "bulk.test\nother.test\n\"#odd\"@bulk.test\n",
}

func compileLists(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"compile", "-o", filepath.Join(dir, "x.bdx"), "--format", "plain", "--exceptions", "all"}
	var names []string
	for name, text := range files {
		names = append(names, writeFile(t, dir, name, text))
	}
	slices.Sort(names)
	runs(t, append(args, names...)...)
	return filepath.Join(dir, "x.bdx")
}

// linesOf drops comments and blank lines.
func linesOf(text string) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(text), "\n"), func(l string) bool {
		return l == "" || l[0] == '#' || l[0] == ';'
	})
}

func TestExportWritesInTheOrderOfTheFiles(t *testing.T) {
	bdx := compileLists(t, exportLists)
	code, out, errs := blockd(t, "", "export", "-i", bdx, "--format", "plain")
	want := []string{"promo@bulk.test", "offers@", "bulk.test", "=alone.test", ".below.test", "!press@bulk.test", "!free.test", "under.free.test",
		"198.51.100.7", "other.test", `"#odd"@bulk.test`} // bulk.test is not said again
	if have := linesOf(out); !slices.Equal(have, want) || code != 0 {
		t.Errorf("code %d\nhave %q\nwant %q", code, have, want)
	}
	testkit.Got(out, strings.Count(errs, "\n"))(t, errs, "# written by blockd export: generation …", 1)
}

// TestExportRefusesNobodyMore: where a format has no exceptions, what stands under
// one is not written.
func TestExportRefusesNobodyMore(t *testing.T) {
	bdx := compileLists(t, exportLists)
	code, out, errs := blockd(t, "", "export", "-i", bdx, "--format", "hosts")
	if have := linesOf(out); code != exitFault || !slices.Equal(have, []string{"0.0.0.0 bulk.test", "0.0.0.0 alone.test", "0.0.0.0 other.test"}) {
		t.Errorf("code %d: %q", code, have)
	}
	testkit.Has(t, errs, "2 of them as the name alone", "1 under exceptions left out", "1× local-part", "1× names below", "1× address (allow)")
}

func TestExportSaysWhatIsWrong(t *testing.T) {
	bdx := compileLists(t, exportLists)
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"export"}, exitUsage, "want --format, one of plain"},
		{[]string{"export", "--format", "csv"}, exitUsage, "want --format"},
		{[]string{"export", "-i", bdx, "-c", "x", "--format", "plain"}, exitUsage, "not both"},
		{[]string{"export", "-i", bdx, "--format", "plain", "--list", "frist"}, exitUsage, `no list "frist" in the index, did you mean first?`},
		{[]string{"export", "-i", bdx + "x", "--format", "plain"}, exitUsage, "no index yet"},
		{[]string{"export", "-i", bdx, "--format", "plain", "-o", filepath.Join(t.TempDir(), "no", "file")}, exitUsage, "no such file"},
	} {
		says(t, tt.code, tt.says, tt.args...)
	}
}

// No other program can ask for the proof that an exception wants: written without it,
// whoever claims the address would pass there.
func TestExportLeavesOutExceptionsThatWantProof(t *testing.T) {
	const config = "[index]\npath = \"x.bdx\"\n%s[[list]]\nname = \"bulk\"\npath = \"bulk.txt\"\n" +
		"[[list]]\nname = \"friends\"\npath = \"friends.txt\"\naction = \"allow\"\n%s"
	for _, tt := range []struct{ name, auth, require, want, says string }{
		{"believed", "", "", "!boss@bulk.example\n!192.0.2.7\n!other.example\nbulk.example\nother.example\n", "plain: 5 entries written\n"},
		{"with require", "", "require = [\"dkim\"]\n", "!192.0.2.7\nbulk.example\nother.example\n", "left out, since the format cannot say them: 1× address (allow with proof), 1× name with names below (allow with proof)"},
		{"no exception is believed", "[auth]\nunverified_allow = \"ignore\"\n", "", "!192.0.2.7\nbulk.example\nother.example\n", "1× address (allow with proof), 1× name with names below (allow with proof)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, "bulk.txt", "bulk.example\nother.example\n")
			writeFile(t, dir, "friends.txt", "boss@bulk.example\nother.example\n192.0.2.7\n")
			path := writeFile(t, dir, "config.toml", fmt.Sprintf(config, tt.auth, tt.require))
			runs(t, "compile", "-c", path)
			_, out, errs := blockd(t, "", "export", "-c", path, "--format", "plain")
			_, lines, _ := strings.Cut(out, "\n") // behind the title
			have := strings.SplitAfter(lines, "\n")
			slices.Sort(have)
			want := strings.SplitAfter(tt.want, "\n")
			slices.Sort(want)
			if !slices.Equal(have, want) || !strings.Contains(errs, tt.says) {
				t.Errorf("wrote %q, want %q\nsaid %q, want %q", have, want, errs, tt.says)
			}
		})
	}
}

// TestExportByTheConfiguration: a list that only tags does not refuse, and a list that
// defers does not refuse permanently.
func TestExportByTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	head, _, _ := strings.Cut(anyPorts, "[[list]]")
	config := head
	for _, l := range []struct{ name, more string }{{"refusing", ""}, {"tagging", `on_match = "tag"`}, {"deferring", `on_match = "tempfail"`}, {"shadow", `mode = "shadow"`}} {
		writeFile(t, dir, l.name+".txt", l.name+".test\n")
		config += "[[list]]\nname = \"" + l.name + "\"\npath = \"" + l.name + ".txt\"\nformat = \"plain\"\n" + l.more + "\n"
	}
	config = writeFile(t, dir, "config.toml", config)
	runs(t, "compile", "-c", config)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"refusing.test REJECT", "deferring.test DEFER"}},
		{[]string{"--list", "tagging", "--list", "shadow"}, []string{"tagging.test REJECT", "shadow.test REJECT"}},
	} {
		_, out, errs := blockd(t, "", append([]string{"export", "-c", config, "--format", "postfix"}, tt.args...)...)
		if have := linesOf(out); !slices.Equal(have, tt.want) {
			t.Errorf("%q: %q, want %q; %s", tt.args, have, tt.want, errs)
		}
	}
}

// What users have, in a list and live, goes out as a CSV, and comes back by import as the same, and by a list as the same.
func TestExportOwned(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	path := testkit.Write(t, at("config.toml"), "[index]\npath = \"i.bdx\"\n[http]\nlisten = \"\"\n[live]\nfolder = \"live\"\n[[list]]\nname = \"users\"\npath = \"users.csv\"\nformat = \"csv:entry\"\nper_recipient = true\n")
	const all = `owner,entry,action,reason
anna@here.example,.below.example,block,"too much, ""really"""
anna@here.example,=shop.example,allow,
anna@here.example,live@x.example,block,enough
anna@here.example,offers@,block,
anna@here.example,promo@bulk.example,allow,later word
bob@here.example,promo@bulk.example,block,
here.example,bulk.example,block,of all
`
	testkit.Write(t, at("users.csv"), "owner,entry,action,reason\nanna@here.example,promo@bulk.example,block,before\nanna@here.example,.below.example,block,\"too much, \"\"really\"\"\"\n"+
		"anna@here.example,=shop.example,allow,\nanna@here.example,offers@,block,\nBob@here.example,Promo@bulk.example,block,\n@here.example,bulk.example,block,of all\n")
	run := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := blockd(t, "", append(args, "-c", path)...)
		testkit.MustEqual(t, fmt.Sprintf("%q: %s%s", args, out, errs), code, want)
		return out + errs
	}
	run(0, "compile")
	run(0, "add", "promo@bulk.example", "--owner", "anna@here.example", "--action", "allow", "--why", "later word")
	run(0, "add", "live@x.example", "--owner", "anna@here.example", "--why", "enough")
	testkit.Has(t, run(0, "export", "--format", "csv:entry", "-o", at("out.csv")), "7 entries of 3 owners")
	testkit.Equal(t, "exported", string(testkit.Read(t, at("out.csv"))), all)
	testkit.Equal(t, "mode", testkit.Value(os.Stat(at("out.csv")))(t).Mode().Perm(), 0o600)
	if text := run(0, "export", "--format", "csv:entry", "--owner", "bob@here.example"); !strings.Contains(text, "bob@here.example,promo@bulk.example,block,\n") || strings.Contains(text, "anna") {
		t.Errorf("of Bob: %s", text)
	}
	// By import.
	runs(t, "import", "--csv", at("out.csv"), "-o", at("imported"))
	var imported string
	filepath.Walk(at("imported"), func(name string, _ os.FileInfo, _ error) error {
		if filepath.Base(name) == "users.csv" {
			imported = name
		}
		return nil
	})
	// By a list: with what came out and no live entries it is the same again.
	testkit.Write(t, at("users.csv"), string(testkit.Read(t, imported)))
	testkit.Must(t, os.RemoveAll(at("live")))
	run(0, "compile")
	run(0, "export", "--format", "csv:entry", "-o", at("again.csv"))
	testkit.Equal(t, "imported and exported again", string(testkit.Read(t, at("again.csv"))), all)
	// An end is not lost in silence.
	run(0, "add", "soon@x.example", "--owner", "anna@here.example", "--for", "1h")
	if text := run(1, "export", "--format", "csv:entry"); !strings.Contains(text, "left out 1 entry with an end") || strings.Contains(text, "soon@") {
		t.Errorf("with an end: %s", text)
	}
	run(2, "export", "--format", "plain", "--owner", "anna@here.example")
}
