package postgres

import (
	"os/exec"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/sources/mirror/mirrortest"
	"blockd/sources/mirror/query"
)

// TestUnlogged changes a table in ways that no trigger tells of, or none that was there at first.
func TestUnlogged(t *testing.T) {
	const inParts = `drop table senders; create table senders (id serial, entry text, action text, expires timestamptz, reason text) partition by list (action);
		create table senders_allow partition of senders for values in ('allow'); create table senders_rest partition of senders default;`
	const inherits = "create table more () inherits (senders);"
	aside := "create table loaded (like senders including all); grant select on loaded to reader; insert into loaded (entry, action) values ('b.example', 'block'); "
	seen := func(what string, want []string, changes ...string) mirrortest.Unseen {
		return mirrortest.Unseen{What: what, Changes: changes, Want: want}
	}
	unlogged := func(u mirrortest.Unseen) mirrortest.Unseen { u.Unlogged = true; return u }
	b, ab := []string{"b.example b"}, []string{"a.example b", "b.example b"}
	const add = "insert into senders (entry, action) values ('b.example', 'block')"
	for tables, all := range map[string][]mirrortest.Unseen{
		"": {
			seen("a plain change", ab, add),
			seen("as a replica", ab, "set session_replication_role = replica; "+add),
			seen("disabled and enabled again", ab, "alter table senders disable trigger user; "+add+"; alter table senders enable always trigger blockd_insert_abuse; alter table senders enable always trigger "+
				"blockd_update_abuse; alter table senders enable always trigger blockd_delete_abuse; alter table senders enable always trigger blockd_truncate_abuse"),
			seen("a column rewritten", []string{"a.example.x b"}, "alter table senders alter entry type text using entry || '.x'"),
			unlogged(seen("loaded aside and renamed", b, aside+"drop table senders cascade; alter table loaded rename to senders")),
			unlogged(seen("the former one kept", b, aside+"alter table senders rename to former; alter table loaded rename to senders")),
			unlogged(seen("disabled", ab, "alter table senders disable trigger user; "+add)),
			unlogged(seen("one is disabled", []string{}, "alter table senders disable trigger blockd_delete_abuse; delete from senders")),
			unlogged(seen("one is dropped", []string{"c.example b"}, "drop trigger blockd_update_abuse on senders; update senders set entry = 'c.example'")),
			unlogged(seen("only at the origin", ab, "alter table senders enable trigger blockd_insert_abuse; set session_replication_role = replica; "+add)),
			unlogged(seen("its function logs nothing", ab, "create or replace function blockd_log_abuse() returns trigger language plpgsql as 'begin return null; end'; "+add)),
		},
		inParts: {
			seen("a partition's own row", ab, "insert into senders_rest (entry, action) values ('b.example', 'block')"),
			seen("a partition is emptied", []string{}, "truncate senders_rest"),
			seen("a partition is taken away", []string{}, "alter table senders detach partition senders_rest"),
			unlogged(seen("a new partition", ab, "create table senders_block partition of senders for values in ('block2')", add)),
			unlogged(seen("a partition of another server", ab, "create extension file_fdw; create server files foreign data wrapper file_fdw; create foreign table elsewhere (id int not null, entry text, action text, expires timestamptz, reason text) "+
				`server files options (program 'printf "7\tb.example\tblock\t\\N\t\\N\n"')`, "grant select on elsewhere to reader; alter table senders attach partition elsewhere for values in ('block2')")),
			unlogged(seen("a partition comes with rows", []string{"a.example b", "c.example t"}, "create table d (like senders); insert into d (id, entry, action) values (9, 'c.example', 'tempfail')",
				"alter table senders attach partition d for values in ('tempfail')")),
		},
		inherits: {
			seen("a child's own row", ab, "insert into more (entry, action) values ('b.example', 'block')"),
			seen("all in a child", b, "insert into more (entry, action) values ('b.example', 'block'); truncate only senders"),
		},
	} {
		for _, u := range all {
			name, o := database(t, "", Options{}, tables+"insert into senders (entry, action) values ('a.example', 'block');")
			s := open(t, o)
			u.Seen(t, s, func(sql string) { shared.Exec(t, name, sql) }, func() {
				if strings.Contains(u.What, "another server") { // no trigger helps
					shared.Exec(t, name, "alter table senders detach partition elsewhere")
				}
				shared.Exec(t, name, testkit.Value(s.DDL())(t))
			})
		}
	}
}

// TestDDLInAnyLocale: what a terminal takes for its letters does not matter to the log.
func TestDDLInAnyLocale(t *testing.T) {
	name, o := database(t, "", Options{Changes: query.None})
	o.Changes, o.List = query.Log, "Mißbrauch ж"
	s := open(t, o)
	psql := exec.Command(testkit.Peer(t, "psql"), "-v", "ON_ERROR_STOP=1", "-d", shared.URL("postgres", name))
	psql.Stdin, psql.Env = strings.NewReader(testkit.Value(s.DDL())(t)), []string{"PGCLIENTENCODING=LATIN1"}
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, mark := mirrortest.Rows(t, s)
	shared.Exec(t, name, "insert into senders (entry) values ('a.example')")
	mirrortest.WantChanges(t, s, mark, "a.example ")
}
