package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/postgresserver"
	"blockd/internal/testkit"
)

const sourcesDocument = "docs/sources.md"

// example is an example of docs/sources.md: its configuration, and its commands with the addresses of this test.
type example struct {
	*daemon
	env    []string
	oldnew *strings.Replacer
}

func newExample(t *testing.T, config string) *example {
	t.Helper()
	d := &daemon{dir: t.TempDir(), smtp: freeAddress(t), http: freeAddress(t)}
	e := &example{daemon: d, oldnew: strings.NewReplacer("127.0.0.1:2525", d.smtp, "127.0.0.1:8025", d.http)}
	testkit.Write(t, d.path("config.toml"), "[index]\npath = \"blockd.bdx\"\n[milter]\nlisten = \"\"\n"+e.oldnew.Replace(config))
	commands := t.TempDir()
	if err := os.Symlink(program, filepath.Join(commands, "blockd")); err != nil {
		t.Fatal(err)
	}
	e.env = []string{"PATH=" + commands + ":" + os.Getenv("PATH")}
	return e
}

func (e *example) types(t *testing.T, commands []command) {
	t.Helper()
	for i := range commands {
		commands[i].text = e.oldnew.Replace(commands[i].text)
	}
	perform(t, sourcesDocument, e.dir, e.env, commands)
}

// TestSourceOfPostgreSQL types the first example of docs/sources.md: a row is inserted, and the next RCPT refused.
func TestSourceOfPostgreSQL(t *testing.T) {
	testkit.Peer(t, "curl")
	testkit.Peer(t, "psql")
	server, err := postgresserver.Open()
	if errors.Is(err, exec.ErrNotFound) {
		testkit.Missing(t, "PostgreSQL is not installed (make peers)")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.Exec(t, "postgres", "create database mail")
	blocks := consoles(t, sourcesDocument)
	e := newExample(t, fenced(t, sourcesDocument, "toml")[0])
	testkit.Write(t, e.path("abuse.dsn"), server.URL("blockd", "mail")+"\n")
	host, port, _ := strings.Cut(server.Address, ":")
	e.env = append(e.env, "PGHOST="+host, "PGPORT="+port, "PGUSER=postgres", "PGOPTIONS=--client-min-messages=warning")
	e.types(t, blocks[0])
	e.start(t)
	e.types(t, blocks[1])
}

// TestSourceOfSQLite types the example of SQLite.
func TestSourceOfSQLite(t *testing.T) {
	testkit.Peer(t, "curl")
	testkit.Peer(t, "sqlite3")
	blocks := consoles(t, sourcesDocument)
	e := newExample(t, fenced(t, sourcesDocument, "toml")[1])
	e.types(t, blocks[2])
	e.start(t)
	e.types(t, blocks[3])
}

// Every configuration of docs/sources.md is good.
func TestSourcesOfTheDocument(t *testing.T) {
	for i, config := range fenced(t, sourcesDocument, "toml") {
		if !strings.Contains(config, "[http]") {
			config = "[http]\nlisten = \"127.0.0.1:8025\"\n[smtp]\nlisten = \"127.0.0.1:2525\"\nupstream = \"maildir:mail\"\n" + config
		}
		e := newExample(t, config)
		testkit.Write(t, e.path("abuse.dsn"), "postgres://blockd@127.0.0.1/mail\n")
		if out, err := exec.Command(program, "config", "--check", "-c", e.path("config.toml")).CombinedOutput(); err != nil {
			t.Errorf("block %d: %v\n%s", i, err, out)
		}
	}
}
