package stores

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/mariadbserver"
	"blockd/internal/testkit/postgresserver"
	"blockd/internal/testkit/redisserver"
	"blockd/internal/testkit/slapdserver"
)

const sourcesDocument = "docs/sources.md"

// example is an example of docs/sources.md: its configuration, and its commands with the addresses of this test.
type example struct {
	*e2e.Daemon
	env    []string
	oldnew *strings.Replacer
}

func newExample(t *testing.T, config string) *example {
	t.Helper()
	d := &e2e.Daemon{Dir: t.TempDir(), SMTP: e2e.FreeAddress(t), HTTP: e2e.FreeAddress(t)}
	e := &example{Daemon: d, oldnew: strings.NewReplacer("127.0.0.1:2525", d.SMTP, "127.0.0.1:8025", d.HTTP)}
	testkit.Write(t, d.Path("config.toml"), "[index]\npath = \"blockd.bdx\"\n[milter]\nlisten = \"\"\n"+e.oldnew.Replace(config))
	commands := t.TempDir()
	testkit.Must(t, os.Symlink(e2e.Program, filepath.Join(commands, "blockd")))
	e.env = []string{"PATH=" + commands + ":" + os.Getenv("PATH")}
	return e
}

func (e *example) types(t *testing.T, commands []e2e.Command) {
	t.Helper()
	for i := range commands {
		commands[i].Text = e.oldnew.Replace(commands[i].Text)
	}
	e2e.Perform(t, sourcesDocument, e.Dir, e.env, commands)
}

// TestSourceOfPostgreSQL types the first example of docs/sources.md: a row is inserted, and the next RCPT refused.
func TestSourceOfPostgreSQL(t *testing.T) {
	testkit.Peer(t, "curl")
	testkit.Peer(t, "psql")
	server, err := postgresserver.Open()
	if errors.Is(err, exec.ErrNotFound) {
		testkit.Missing(t, "PostgreSQL is not installed (make peers)")
	}
	testkit.Must(t, err)
	defer server.Close()
	server.Exec(t, "postgres", "create database mail")
	blocks := e2e.Consoles(t, sourcesDocument)
	e := newExample(t, e2e.Fenced(t, sourcesDocument, "toml")[0])
	testkit.Write(t, e.Path("abuse.dsn"), server.URL("blockd", "mail")+"\n")
	host, port, _ := strings.Cut(server.Address, ":")
	e.env = append(e.env, "PGHOST="+host, "PGPORT="+port, "PGUSER=postgres", "PGOPTIONS=--client-min-messages=warning")
	e.types(t, blocks[0])
	e.Start(t)
	e.types(t, blocks[1])
}

// TestSourceOfSQLite types the example of SQLite.
func TestSourceOfSQLite(t *testing.T) {
	testkit.Peer(t, "curl")
	testkit.Peer(t, "sqlite3")
	blocks := e2e.Consoles(t, sourcesDocument)
	e := newExample(t, e2e.Fenced(t, sourcesDocument, "toml")[1])
	e.types(t, blocks[2])
	e.Start(t)
	e.types(t, blocks[3])
}

// sourceOf types the nth example of docs/sources.md, whose list has a name: what comes before the daemon is started, and what comes
// then. dsn is the line of NAME.dsn, and replace has what else is here another than in the document, in pairs.
func sourceOf(t *testing.T, n int, name, dsn string, env []string, replace ...string) {
	t.Helper()
	testkit.Peer(t, "curl")
	blocks := e2e.Consoles(t, sourcesDocument)
	e := newExample(t, sourceDoors+e2e.Fenced(t, sourcesDocument, "toml")[n])
	e.oldnew = strings.NewReplacer(append(replace, "127.0.0.1:2525", e.SMTP, "127.0.0.1:8025", e.HTTP)...)
	e.env = append(e.env, env...)
	testkit.Write(t, e.Path(name+".dsn"), dsn+"\n")
	if err := os.WriteFile(e.Path("admin.secret"), []byte("admin"), 0o600); err != nil { // of the directory
		t.Fatal(err)
	}
	e.types(t, blocks[2*n])
	e.Start(t)
	e.types(t, blocks[2*n+1])
}

// sourceDoors are what the shorter configurations of docs/sources.md leave out.
const sourceDoors = "[http]\nlisten = \"127.0.0.1:8025\"\n[smtp]\nlisten = \"127.0.0.1:2525\"\nupstream = \"maildir:mail\"\n"

// TestSourceOfMariaDB types the example of MySQL and MariaDB.
func TestSourceOfMariaDB(t *testing.T) {
	testkit.Peer(t, "mariadb")
	server := mariadbserver.Start(t)
	if _, err := server.DB.Exec("create database mail"); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	testkit.Write(t, filepath.Join(home, ".my.cnf"), "[client]\nuser = root\nsocket = "+server.Socket+"\n")
	sourceOf(t, 2, "maria", "mysql://blockd:PASSWORD@"+server.Address+"/mail", []string{"HOME=" + home})
}

// TestSourceOfDirectory types the example of LDAP, with StartTLS and an authority of its own.
func TestSourceOfDirectory(t *testing.T) {
	testkit.Peer(t, "ldapadd")
	server := slapdserver.Start(t, "")
	dsn := server.URL("ou=blocked,dc=test??sub?(objectClass=inetOrgPerson)?!starttls,tls_ca=" + slapdserver.Escape(server.CertificateFile))
	sourceOf(t, 3, "directory", dsn, []string{"LDAPURI=ldapi://" + slapdserver.Escape(server.Socket)}, "dc=example,dc=com", "dc=test")
}

// TestSourceOfRedis types the example of Redis.
func TestSourceOfRedis(t *testing.T) {
	testkit.Peer(t, "redis-cli")
	server := redisserver.Start(t)
	host, port, _ := strings.Cut(server.Address, ":")
	sourceOf(t, 4, "redis", "redis://blockd:PASSWORD@"+server.Address, nil, "redis-cli", "redis-cli -h "+host+" -p "+port)
}

// TestSourceOfObjects types the example of an object store, by TLS with an authority of its own.
func TestSourceOfObjects(t *testing.T) {
	files := s3mem.New()
	testkit.Must(t, files.CreateBucket("lists"))
	server := httptest.NewTLSServer(gofakes3.New(files).Server())
	defer server.Close()
	ca := testkit.Write(t, filepath.Join(t.TempDir(), "ca.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	address := server.Listener.Addr().String()
	sourceOf(t, 5, "feeds", "s3://KEY:SECRET@"+address+"/lists/blocked/?tls=true&tls_ca="+ca, []string{"CURL_CA_BUNDLE=" + ca}, "s3.example", address)
}

// Every configuration of docs/sources.md is good.
func TestSourcesOfTheDocument(t *testing.T) {
	for _, config := range e2e.Fenced(t, sourcesDocument, "toml") {
		if !strings.Contains(config, "[http]") {
			config = sourceDoors + config
		}
		e := newExample(t, config)
		for name, dsn := range map[string]string{"abuse": "postgres://blockd@127.0.0.1/mail", "maria": "mysql://blockd@127.0.0.1/mail",
			"directory": "ldap://127.0.0.1/dc=test??sub?", "redis": "redis://127.0.0.1", "feeds": "s3://127.0.0.1/lists/blocked/"} {
			testkit.Write(t, e.Path(name+".dsn"), dsn+"\n")
		}
		e2e.Blockd(t, "config", "--check", "-c", e.Path("config.toml"))
	}
}
