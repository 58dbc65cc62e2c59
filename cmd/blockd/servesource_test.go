//go:build !nosql

package main

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/doors/httpapi"
	"blockd/internal/testkit"
)

// senders is a list in a database of SQLite, with a log of its changes.
const senders = anyPorts + `
[[list]]
name = "abuse-desk"
[list.source]
kind = "sqlite"
dsn = "sqlite:senders.db"
query = "select entry, reason, id from senders"
changes = "log"
every = "100ms"
`

// sendersIn makes the configuration and the database in a folder.
func sendersIn(t *testing.T, dir string) *sql.DB {
	t.Helper()
	writeFile(t, dir, "config.toml", senders)
	writeFile(t, dir, "lists/a.txt", "other.example\n")
	c := testkit.Value(config.Load(filepath.Join(dir, "config.toml")))(t)
	source := testkit.Value(daemon.OpenSource(c.Lists[len(c.Lists)-1]))(t)
	defer source.Close()
	db := testkit.Value(sql.Open("sqlite", "file:"+filepath.Join(dir, "senders.db")+"?_busy_timeout=60000"))(t)
	t.Cleanup(func() { db.Close() })
	edit(t, db, "create table senders (id integer primary key, entry text not null unique, reason text)")
	edit(t, db, source.(interface{ DDL() string }).DDL())
	edit(t, db, "insert into senders (entry, reason) values ('bulk.example', 'ticket 7')")
	return db
}

func edit(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	testkit.Value(db.Exec(statement))(t)
}

// source is what /v1/lists says of the source.
func (d *running) source(t *testing.T) (s httpapi.ListSource) {
	t.Helper()
	var table httpapi.ListTable
	_, body := d.get(t, "/v1/lists")
	testkit.Must(t, json.Unmarshal([]byte(body), &table))
	for _, w := range table.Worth {
		if w.List == "abuse-desk" && w.Source != nil {
			return *w.Source
		}
	}
	t.Fatalf("/v1/lists has no source: %s", body)
	return s
}

func (d *running) turnsAway(t *testing.T, from string) bool {
	t.Helper()
	return strings.HasPrefix(d.send(t, from, "you@here.example"), "550 ")
}

// TestSourceAwayAtTheFirstStart: the other lists filter until the source is there.
func TestSourceAwayAtTheFirstStart(t *testing.T) {
	dir := t.TempDir()
	db := sendersIn(t, dir)
	moved := filepath.Join(dir, "moved.db")
	testkit.Must(t, os.Rename(filepath.Join(dir, "senders.db"), moved))
	db.Close()
	d := serveIn(t, dir, "smtp", "http")
	if !d.turnsAway(t, "x@other.example") {
		t.Error("the other lists do not filter")
	}
	testkit.Eventually(t, "/readyz to be degraded", func() bool { // once upstream has passed the test of relaying
		code, body := d.get(t, "/readyz")
		return code == 200 && strings.HasPrefix(body, "degraded: 1 of 2 lists filter\n")
	})
	if s := d.source(t); s.LagSeconds != nil || s.Rows != 0 || s.State != "away" {
		t.Errorf("a source that was never read: %+v", s)
	}
	testkit.Must(t, os.Rename(moved, filepath.Join(dir, "senders.db")))
	testkit.Eventually(t, "the list to filter", func() bool { return d.turnsAway(t, "x@bulk.example") })
	testkit.Eventually(t, "/readyz to be ok", func() bool {
		_, body := d.get(t, "/readyz")
		return strings.HasPrefix(body, "ok\n")
	})
}

// TestCompileReadsASourceOnce: without a copy compile reads the source, and a copy that is there is taken as it is.
func TestCompileReadsASourceOnce(t *testing.T) {
	dir := t.TempDir()
	db := sendersIn(t, dir)
	path := filepath.Join(dir, "config.toml")
	if code, _, errs := blockd(t, "", "compile", "--offline", "-c", path); code == 0 || !strings.Contains(errs, "abuse-desk") {
		t.Errorf("compile --offline without a copy = %d, %s", code, errs)
	}
	verdict := func(sender string) string {
		code, out, errs := blockd(t, "", "check", "-c", path, sender)
		if code > 1 {
			t.Fatalf("check = %d, %s", code, errs)
		}
		return out
	}
	for range 2 {
		runs(t, "compile", "-c", path)
		testkit.Has(t, verdict("x@bulk.example"), "abuse-desk")
		testkit.Lacks(t, verdict("x@new.example"), "abuse-desk")
		edit(t, db, "insert into senders (entry) values ('new.example') on conflict do nothing") // which the daemon will read
	}
	files := testkit.Value(filepath.Glob(filepath.Join(dir, "var/a.bdx.mirror/abuse-desk/current/*.ent")))(t)
	testkit.MustEqual(t, "files", len(files), 64)
	runs(t, append([]string{"lint"}, files...)...)
}
