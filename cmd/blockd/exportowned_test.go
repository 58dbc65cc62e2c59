package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

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
