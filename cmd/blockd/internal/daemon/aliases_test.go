package daemon

import (
	"errors"
	"os/exec"
	"testing"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
	"blockd/internal/testkit/mariadbserver"
	"blockd/internal/testkit/postgresserver"
	"blockd/mail/addr"
)

// aliasTable has two aliases, a domain, and rows that are none: each costs itself alone.
const aliasTable = `create table aliases (alias varchar(200), owner varchar(200), active int);
	insert into aliases values ('Sales@Here.example', 'anna@here.example', 1), ('info@here.example', 'bob@here.example', 1), ('@old.example', '@here.example', 1),
	('none', 'a b', 1), (null, 'anna@here.example', 1), ('x@here.example', null, 1), ('gone@here.example', 'anna@here.example', 0);`

// TestAliasesOfPostgres and TestAliasesOfMariaDB read [recipients] aliases as docs/recipients.md has it from real servers.
func TestAliasesOfPostgres(t *testing.T) {
	s, err := postgresserver.Open()
	if errors.Is(err, exec.ErrNotFound) {
		testkit.Missing(t, "PostgreSQL is not installed (make peers)")
	}
	testkit.Must(t, err)
	t.Cleanup(s.Close)
	name := s.Database(t, "")
	s.Exec(t, name, aliasTable+"create role reader login; grant select on aliases to reader")
	checkAliases(t, "postgres", s.URL("reader", name), func(statement string) { s.Exec(t, name, statement) })
}

func TestAliasesOfMariaDB(t *testing.T) {
	s := mariadbserver.Start(t)
	do := func(statement string) {
		t.Helper()
		testkit.Value(s.DB.Exec(statement))(t)
	}
	do("create database mail; create user reader identified by 'p/w#9?@secret'; grant select on mail.* to reader; use mail; " + aliasTable)
	checkAliases(t, "mysql", s.URL("reader", "p/w#9?@secret", "mail"), func(statement string) { do("use mail; " + statement) })
}

func checkAliases(t *testing.T, kind, dsn string, do func(statement string)) {
	t.Helper()
	c := config.Default()
	read := func(query string) (n int, owners map[string]string) {
		t.Helper()
		c.Recipients.Aliases = &config.Aliases{Kind: kind, DSN: dsn, Query: query}
		all := testkit.Value(ReadAliases(t.Context(), c))(t)
		owners = map[string]string{}
		for _, to := range []string{"sales@here.example", "info@here.example", "carl@old.example", "gone@here.example"} {
			a := testkit.Value(addr.Parse(to))(t)
			owners[to] = all.Owner(a, a).String()
		}
		return all.Len(), owners
	}
	n, owners := read("select alias, owner from aliases where active = 1 -- the others are former ones")
	if n != 3 || owners["sales@here.example"] != "anna@here.example" || owners["info@here.example"] != "bob@here.example" ||
		owners["carl@old.example"] != "carl@here.example" || owners["gone@here.example"] != "gone@here.example" {
		t.Errorf("%d aliases: %v", n, owners)
	}
	do("update aliases set owner = 'anna@here.example' where alias = 'info@here.example'; update aliases set active = 1")
	if n, owners = read("select alias, owner from aliases where active = 1"); n != 4 || owners["info@here.example"] != "anna@here.example" || owners["gone@here.example"] != "anna@here.example" {
		t.Errorf("after a change %d aliases: %v", n, owners)
	}
	c.Recipients.Aliases.Query = "select alias, owner from missing"
	if _, err := ReadAliases(t.Context(), c); err == nil {
		t.Error("a table that is missing was read")
	}
}
