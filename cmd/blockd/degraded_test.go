package main

import (
	"os"
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
	config := anyPorts + `
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
	}
	// What a disk, another process or a while takes is made wrong by the tests of the packages that tell of it.
	elsewhere := []string{bell.Lists, bell.LiveEntries, bell.Disk, bell.History, bell.Audit, bell.Publish, bell.Upgrade, bell.Quarantine, bell.NotReady}
	var rows []string
	_, text, _ := strings.Cut(string(testkit.Read(t, testkit.Root(t)+"/docs/operation.md")), "## What is degraded\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(text, -1) {
		if row[1] != "name" {
			rows = append(rows, row[1])
		}
	}
	testkit.EqualSlices(t, "rows of the table", rows, bell.Names())
	for _, name := range rows {
		if _, has := here[name]; has == slices.Contains(elsewhere, name) {
			t.Errorf("%s is made wrong here: %v", name, has)
		}
	}

	dir := t.TempDir()
	writeFile(t, dir, "config.toml", strings.Replace(config, "maildir:mail", "smtp://"+testkit.Refusing(t)+"\"\nclient_info = \"none", 1))
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	writeFile(t, dir, "var/a.bdx.pauses", "{half")
	d := serveIn(t, dir, "smtp", "http")
	writeFile(t, dir, "config.toml", config+"nonsense = 1\n")
	testkit.Must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	for _, name := range rows {
		begin, has := here[name]
		if !has {
			continue
		}
		testkit.Eventually(t, name, func() bool {
			_, body := d.get(t, "/readyz")
			return !strings.HasPrefix(body, "ok") && strings.Contains(body, begin)
		})
	}
}
