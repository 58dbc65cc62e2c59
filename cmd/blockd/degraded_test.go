package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"blockd/internal/testkit"
	"blockd/records/bell"
)

// TestWhateverStopsChangesIsDegraded walks through the table of docs/operation.md: each row is a kind of problem, and
// each kind has a row. What can be made wrong here is so in one daemon, which says all of it; the others name the
// test that makes them wrong.
func TestWhateverStopsChangesIsDegraded(t *testing.T) {
	config := strings.Replace(anyPorts, "[smtp]\n", "[smtp]\nquarantine = \"aside\"\nquarantine_max_messages = 1\n", 1) + `
[recipients]
aliases = { kind = "file", path = "aliases", every = "1s" }
[fleet]
from = "file:///nowhere/there"
keys = ["minisign:RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"]
every = "1s"
[[list]]
name = "gone"
path = "gone.txt"
format = "plain"
[[list]]
name = "table"
per_recipient = true
[list.source]
kind = "sqlite"
dsn = "sqlite:nowhere.db"
query = "select entry, owner from senders"
changes = "none"
[[filter]]
name = "bits"
as = "bitmap"
to = "redis://` + testkit.Refusing(t) + `#bits"
`
	here := map[string]string{
		bell.ListRefused:   "list gone: ",
		bell.Source:        "list table: its source is ",
		bell.Pauses:        "pauses: ",
		bell.Aliases:       "recipients.aliases: cannot be read, and nobody behind an alias has his entries: ",
		bell.Filter:        "filter bits in redis://",
		bell.Configuration: "nonsense",
		bell.Fleet:         "fleet: no snapshot yet: ",
		bell.NextServer:    "smtp.upstream: ",
		bell.LiveEntries:   "journal:2: damaged, and left out: ",
		bell.Quarantine:    "smtp.quarantine: 100 % full",
		bell.Audit:         "the audit journal cannot be written",
		bell.Disk:          "live.folder: the disk of ",
		bell.Lists:         "a.bdx.lock",
	}
	// What another process or a while takes is made wrong elsewhere.
	elsewhere := map[string]struct{ file, test, says string }{
		bell.History:  {"records/history/log_test.go", "TestFullDisk", "l.Problems()"},
		bell.Publish:  {"cmd/blockd/servefleet_test.go", "TestBrakeHaltsTheChannel", "sequence 2 of the channel prod is halted"},
		bell.Upgrade:  {"cmd/blockd/e2e/program/upgrade_test.go", "TestUpgradeThatFails", "not upgraded: "},
		bell.NotReady: {"cmd/blockd/serve_test.go", "TestNotReadyWhileStopping", "not ready"},
	}
	var rows []string
	_, text, _ := strings.Cut(string(testkit.Read(t, testkit.Root(t)+"/docs/operation.md")), "## What is degraded\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(text, -1) {
		if row[1] != "name" {
			rows = append(rows, row[1])
		}
	}
	var names []string
	source, _, _ := strings.Cut(string(testkit.Read(t, testkit.Root(t)+"/records/bell/bell.go")), "\n)\n\n// key is")
	for _, constant := range regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "([a-z_]+)" `).FindAllStringSubmatch(source, -1) {
		names = append(names, constant[1])
	}
	testkit.AtLeast(t, "names", len(names), 17)
	testkit.EqualSlices(t, "rows of the table", rows, names)
	for _, name := range rows {
		_, has := here[name]
		there, also := elsewhere[name]
		testkit.Equal(t, name+" is made wrong here or elsewhere", has != also, true)
		if also {
			_, body, _ := strings.Cut(string(testkit.Read(t, filepath.Join(testkit.Root(t), there.file))), "\nfunc "+there.test+"(t *testing.T) {\n")
			body, _, _ = strings.Cut(body, "\n}\n")
			testkit.Has(t, body, there.says)
		}
	}

	dir := t.TempDir()
	writeFile(t, dir, "config.toml", strings.Replace(config, "maildir:mail", "smtp://"+testkit.Refusing(t)+"\"\nclient_info = \"none", 1))
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	writeFile(t, dir, "var/a.bdx.pauses", "{half")
	writeFile(t, dir, "var/a.bdx.live/journal", "blockd live entries 1\n00000000 {\"n\":1}\n")
	writeFile(t, dir, "aside/new/1.message", "Subject: hello\n\nhello\n")
	d := serveIn(t, dir, "smtp", "http")
	at := func(suffix string) string { return filepath.Join(dir, "var", "a.bdx."+suffix) }
	testkit.Must(t, os.RemoveAll(at("audit")))
	writeFile(t, dir, "var/a.bdx.audit", "a file, where a folder should be\n")
	code, _, said := d.command("add", "x@more.example")
	testkit.Got(code, said)(t, "a change that cannot be noted", 1, "…the audit journal cannot be written…")
	testkit.Must(t, os.Rename(at("live"), at("live.was")))
	testkit.Must(t, os.Symlink("/proc", at("live"))) // a disk without room, for whoever asks
	writeFile(t, dir, "config.toml", config+"nonsense = 1\n")
	testkit.Must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	rows = slices.DeleteFunc(rows, func(name string) bool { return name == bell.Lists })
	for _, name := range append(rows, bell.Lists) { // without an index nothing else is said of a list
		begin, has := here[name]
		if !has {
			continue
		}
		if name == bell.Lists {
			testkit.Must(t, os.RemoveAll(at("lock")))
			testkit.Must(t, os.Mkdir(at("lock"), 0o700))
			writeFile(t, dir, "lists/a.txt", "bulk.example\nmore.example\n")
		}
		testkit.Eventually(t, name, func() bool {
			_, body := d.get(t, "/readyz")
			return !strings.HasPrefix(body, "ok") && strings.Contains(body, begin)
		})
	}
}
