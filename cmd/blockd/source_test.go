//go:build !nosql

package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// sourceSays runs blockd source and returns all that it says.
func sourceSays(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(append([]string{"source"}, args...), strings.NewReader(""), &out, &errs)
	return code, out.String() + errs.String()
}

const sourceHead = "[http]\nlisten = \"127.0.0.1:1\"\n[smtp]\nlisten = \"127.0.0.1:2\"\nupstream = \"maildir:mail\"\n[index]\npath = \"blockd.bdx\"\n"

func TestSourceCommands(t *testing.T) {
	config := testkit.File(t, "config.toml", sourceHead+`
[[list]]
name = "files"
path = "*.txt"
[[list]]
name = "desk"
[list.source]
kind = "sqlite"
dsn = "sqlite:mail.db"
query = "select id, address as entry, action from senders"
changes = "log"
[[list]]
name = "joined"
[list.source]
kind = "sqlite"
dsn = "sqlite:mail.db"
query = "select address as entry from senders join others using (id)"
changes = "log"
[[list]]
name = "store"
[list.source]
kind = "redis"
dsn = "redis://127.0.0.1:1/0"
`)
	db := testkit.Value(sql.Open("sqlite", "file:"+filepath.Join(filepath.Dir(config), "mail.db")))(t)
	defer db.Close()
	do := func(text string) {
		t.Helper()
		if _, err := db.Exec(text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	do("create table senders (id integer primary key, address text, action text)")
	check := func(want int, words string, args ...string) string {
		t.Helper()
		code, said := sourceSays(t, append(args, "-c", config)...)
		testkit.Got(code, said)(t, fmt.Sprintf("source %s", strings.Join(args, " ")), want, "…"+words+"…")
		return said
	}
	check(1, "hint: blockd source ddl desk prints", "test", "desk")
	do(check(0, "create trigger", "ddl", "desk"))
	check(0, "no rows", "test", "desk")
	do("insert into senders (address, action) values ('x y', 'block')")
	check(1, "none of these rows is an entry", "test", "desk")
	do("insert into senders (address, action) values ('promo@bulk.example', 'allow'), ('z.example', null)")
	check(0, "promo@bulk.example  allow   exact        2", "test", "desk")
	testkit.Lacks(t, check(0, "x y", "test", "--rows", "2", "desk"), "z.example")
	check(2, "--rows: want 1 to 10000", "test", "--rows", "0", "desk")
	check(2, `list "files" has no [list.source]`, "test", "files")
	check(2, `no list "dest", did you mean desk?`, "test", "dest")
	check(2, "want the name of one LIST", "test")
	check(1, "a Redis has no SQL", "ddl", "store")
	check(1, `list "joined": the query has join, so that its rows are not those of one table`, "ddl", "joined")
	check(1, `the script is for kind "redis"`, "lua", "desk")
	check(0, "{blockd:store}:e", "lua", "store")
	check(1, "unreachable", "test", "store")
}

// No password of a URL shows, whatever is wrong.
func TestSourceTestTellsNoSecret(t *testing.T) {
	const secret = "s3cr3t"
	for kind, dsn := range map[string]string{
		"postgres": "postgres://u:" + secret + "@127.0.0.1:1/mail",
		"mysql":    "mysql://u:" + secret + "@127.0.0.1:1/mail",
		"ldap":     "ldap://cn=u:" + secret + "@127.0.0.1:1/dc=x",
		"redis":    "redis://u:" + secret + "@127.0.0.1:1/0",
		"sqlite":   "postgres://u:" + secret + "@127.0.0.1:1/mail", // another kind than was said
	} {
		query := map[string]string{"ldap": `query = "entry=mail"`, "redis": ""}
		text, has := query[kind]
		if !has {
			text = `query = "select a as entry from s"`
		}
		config := testkit.File(t, "config.toml", sourceHead+"[[list]]\nname = \"desk\"\n[list.source]\nkind = \""+kind+"\"\ndsn_file = \"desk.dsn\"\n"+text+"\n")
		for _, url := range []string{dsn, dsn + "%zz", "x" + dsn, strings.Replace(dsn, "127.0.0.1:1", "[::1", 1)} {
			testkit.Write(t, filepath.Join(filepath.Dir(config), "desk.dsn"), url+"\n")
			if code, said := sourceSays(t, "test", "desk", "-c", config); code != 1 || strings.Contains(said, secret) {
				t.Errorf("%s: %d\n%s", kind, code, said)
			}
		}
	}
}

// TestSourceWithOneRowTooWide: a row that the gate keeps out is shown as such, and the others of a small table are a list all the same.
func TestSourceWithOneRowTooWide(t *testing.T) {
	dir := t.TempDir()
	db := testkit.Value(sql.Open("sqlite", filepath.Join(dir, "mail.db")))(t)
	edit(t, db, "create table senders (entry text); insert into senders values ('com'), ('bulk.example')")
	testkit.Must(t, db.Close())
	config := writeFile(t, dir, "config.toml", "[index]\npath = \"a.bdx\"\n[smtp]\nupstream = \"maildir:mail\"\n[[list]]\nname = \"desk\"\n[list.source]\nkind = \"sqlite\"\ndsn = \"sqlite:"+filepath.Join(dir, "mail.db")+"\"\nquery = \"select entry from senders\"\n")
	code, stdout, stderr := blockd(t, "", "source", "test", "-c", config, "desk")
	testkit.Got(code, stdout, stderr)(t, "source test", 0, "…public-suffix: a single label: everybody's names are below it…bulk.example  block   tree…", "…")
	code, stdout, stderr = blockd(t, "", "compile", "-c", config)
	testkit.Got(code, stderr, stdout)(t, "compile", 0, "", "…a.bdx.mirror/desk/current: 64 files…")
	if code, stdout, stderr = blockd(t, "", "check", "--file", "-c", config, "x@bulk.example", "x@there.com"); code != 0 || !strings.Contains(stdout, "x@bulk.example\tblocked") || !strings.Contains(stdout, "x@there.com\tclear") {
		t.Errorf("check: %d\n%s%s", code, stdout, stderr)
	}
}
