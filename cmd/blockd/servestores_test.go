//go:build !nosql

package main

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/redis/go-redis/v9"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/internal/testkit"
	"blockd/internal/testkit/mariadbserver"
	"blockd/internal/testkit/postgresserver"
	"blockd/internal/testkit/redisserver"
	"blockd/internal/testkit/slapdserver"
)

// storeSecret is the password of every store of TestStores.
const storeSecret = "s3cret"

// remoteStore is a server that holds a list.
type remoteStore struct {
	address string // "" for a file
	dsn     string // of it, with ADDRESS in place of its address
	secret  string // its password, if not storeSecret
	keys    string // of [list.source], besides kind, dsn_file and every
	prepare func(t *testing.T, ddl string)
	put     func(t *testing.T, entries ...string) // adds entries
	empty   func(t *testing.T)                    // takes all away
	away    func(t *testing.T, away bool)         // of a file; a server is away if its link is down
}

// config is that of a daemon with the list, whose store the file store.dsn names.
func (s remoteStore) config(kind string) string {
	return anyPorts + "[[list]]\nname = \"abuse-desk\"\n[list.source]\nkind = \"" + kind + "\"\ndsn_file = \"store.dsn\"\nevery = \"100ms\"\n" + s.keys
}

// stores are servers of each kind, with what a test does to a list in them.
var stores = map[string]func(t *testing.T) remoteStore{
	"postgres": func(t *testing.T) remoteStore {
		server, err := postgresserver.Open()
		if errors.Is(err, exec.ErrNotFound) {
			testkit.Missing(t, "PostgreSQL is not installed (make peers)")
		}
		testkit.Must(t, err)
		t.Cleanup(server.Close)
		name := server.Database(t, "")
		do := func(t *testing.T, text string) { t.Helper(); server.Exec(t, name, text) }
		do(t, "create role locked login superuser password '"+storeSecret+"'; create role blockd; create table senders (id bigint primary key generated always as identity, entry text not null)")
		return remoteStore{
			address: server.Address, dsn: "postgres://locked:" + storeSecret + "@ADDRESS/" + name,
			keys:    "query = \"select id, entry from senders\"\nchanges = \"log\"\n",
			prepare: do,
			put:     func(t *testing.T, entries ...string) { t.Helper(); do(t, insertion(entries)) },
			empty:   func(t *testing.T) { t.Helper(); do(t, "truncate senders") },
		}
	},
	"sqlite": func(t *testing.T) remoteStore {
		home := filepath.Join(t.TempDir(), "senders.db")
		path := home
		do := func(t *testing.T, text string) {
			t.Helper()
			db, err := sql.Open("sqlite", "file:"+path+"?_busy_timeout=60000")
			testkit.Must(t, err)
			defer db.Close()
			edit(t, db, text)
		}
		do(t, "create table senders (id integer primary key, entry text not null unique)")
		return remoteStore{
			dsn: "sqlite:" + home, keys: "query = \"select id, entry from senders\"\nchanges = \"log\"\n",
			prepare: do,
			put:     func(t *testing.T, entries ...string) { t.Helper(); do(t, insertion(entries)) },
			empty:   func(t *testing.T) { t.Helper(); do(t, "delete from senders") },
			away: func(t *testing.T, away bool) {
				t.Helper()
				from := path
				if path = home; away {
					path += ".moved"
				}
				testkit.Must(t, os.Rename(from, path))
			},
		}
	},
	"mysql": func(t *testing.T) remoteStore {
		server := mariadbserver.Start(t)
		do := func(t *testing.T, text string) { t.Helper(); edit(t, server.DB, text) }
		server.DB.SetMaxOpenConns(1) // so that USE holds
		do(t, "create database mail; use mail; create table senders (id bigint primary key auto_increment, entry varchar(200) not null);"+
			"create user desk identified by '"+storeSecret+"'; grant all on *.* to desk")
		return remoteStore{
			address: server.Address, dsn: "mysql://desk:" + storeSecret + "@ADDRESS/mail",
			keys: "query = \"select id, entry from senders\"\nchanges = \"log\"\n",
			prepare: func(t *testing.T, ddl string) { // which has delimiters of the client
				t.Helper()
				client := exec.Command(testkit.Peer(t, "mariadb"), "--no-defaults", "--socket="+server.Socket, "--user=root", "mail")
				client.Stdin = strings.NewReader(ddl)
				if out, err := client.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			},
			put:   func(t *testing.T, entries ...string) { t.Helper(); do(t, insertion(entries)) },
			empty: func(t *testing.T) { t.Helper(); do(t, "delete from senders") },
		}
	},
	"redis": func(t *testing.T) remoteStore {
		server := redisserver.Start(t, "--requirepass", storeSecret)
		client := redis.NewClient(&redis.Options{Addr: server.Address, Password: storeSecret})
		t.Cleanup(func() { client.Close() })
		script := ""
		return remoteStore{
			address: server.Address, dsn: "redis://:" + storeSecret + "@ADDRESS/0",
			prepare: func(_ *testing.T, lua string) { script = lua },
			put: func(t *testing.T, entries ...string) {
				t.Helper()
				keys := []string{"{blockd:abuse-desk}:e", "{blockd:abuse-desk}:log", "{blockd:abuse-desk}:rev"}
				for _, e := range entries {
					testkit.Must(t, client.Eval(t.Context(), script, keys, "put", e, "block").Err())
				}
			},
			empty: func(t *testing.T) {
				t.Helper()
				testkit.Must(t, client.FlushAll(t.Context()).Err())
			},
		}
	},
	"ldap": func(t *testing.T) remoteStore {
		server := slapdserver.Start(t, "")
		base := server.Folder(t, "blocked")
		var names []string
		return remoteStore{
			address: server.Address, dsn: "ldap://" + slapdserver.Escape(slapdserver.Reader) + ":" + slapdserver.Escape(slapdserver.Secret) + "@ADDRESS/" + base + "??sub?(objectClass=blockedSender)",
			keys:   "query = \"entry=mail\"\n",
			secret: slapdserver.Secret,
			put: func(t *testing.T, entries ...string) {
				t.Helper()
				for _, e := range entries {
					names = append(names, server.Sender(t, base, fmt.Sprintf("s%d", len(names)), "mail", e))
				}
			},
			empty: func(t *testing.T) {
				t.Helper()
				for _, dn := range slices.Backward(names) { // the one that is looked for goes last: all may be read meanwhile
					server.Remove(t, dn)
				}
			},
		}
	},
	"s3": func(t *testing.T) remoteStore {
		files := s3mem.New()
		server := httptest.NewServer(gofakes3.New(files).Server())
		t.Cleanup(server.Close)
		testkit.Must(t, files.CreateBucket("lists"))
		n := 0
		return remoteStore{
			address: strings.TrimPrefix(server.URL, "http://"), dsn: "s3://AKIAEXAMPLE:" + storeSecret + "@ADDRESS/lists/senders/",
			put: func(t *testing.T, entries ...string) {
				t.Helper()
				n++
				text := strings.Join(entries, "\n") + "\n"
				meta := map[string]string{"Last-Modified": "Mon, 02 Jan 2006 15:04:05 GMT"}
				testkit.Value(files.PutObject("lists", fmt.Sprintf("senders/%d.txt", n), meta, strings.NewReader(text), int64(len(text)), nil))(t)
			},
			empty: func(t *testing.T) {
				t.Helper()
				for i := range n {
					testkit.Value(files.DeleteObject("lists", fmt.Sprintf("senders/%d.txt", i+1)))(t)
				}
			},
		}
	},
}

func insertion(entries []string) string {
	return "insert into senders (entry) values ('" + strings.Join(entries, "'), ('") + "')"
}

// TestStores: a list in a store of each kind is followed. While the link to the store is down its copy serves, through a restart
// too. A store that was emptied does not switch its list off.
func TestStores(t *testing.T) {
	for kind, start := range stores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			store := start(t)
			dir := t.TempDir()
			if store.away == nil {
				link := testkit.NewProxy(t, store.address)
				store.dsn = strings.Replace(store.dsn, "ADDRESS", link.Address, 1)
				store.away = func(_ *testing.T, away bool) { link.Set(testkit.Link{Down: away}) }
			}
			writeFile(t, dir, "store.dsn", store.dsn+"\n")
			writeFile(t, dir, "lists/a.txt", "other.example\n")
			writeFile(t, dir, "config.toml", strings.Replace(store.config(kind), "quiet =", "poll = \"1s\"\nquiet =", 1)) // which finds what was accepted
			if store.prepare != nil {
				store.prepare(t, storeText(t, dir))
			}
			many := []string{"bulk.example"}
			for i := range 150 {
				many = append(many, fmt.Sprintf("n%d.bulk.example", i))
			}
			store.put(t, many...)

			d := serveIn(t, dir, "smtp", "http")
			d.wait(t, "upstream ready")
			testkit.Eventually(t, "the entries to act", func() bool { return d.turnsAway(t, "x@bulk.example") })
			if d.turnsAway(t, "x@new.example") {
				t.Error("a sender of no entry is refused")
			}
			store.put(t, "new.example")
			testkit.Eventually(t, "the new entry to act", func() bool { return d.turnsAway(t, "x@new.example") })
			testkit.Eventually(t, "state ok", func() bool {
				s := d.source(t)
				return s.State == "ok" && s.Class == "" && s.Error == "" && s.Rows == 152 && s.LagSeconds != nil && !s.Since.IsZero()
			})

			store.away(t, true)
			testkit.Eventually(t, "state away", func() bool { // what was under way may be cut first, which has a class of its own
				s := d.source(t)
				return s.State == "away" && s.Class != "" && (s.Class == "unreachable" || store.address == "")
			})
			if s := d.source(t); s.Error == "" || s.Rows != 152 {
				t.Errorf("away: %+v", s)
			}
			if code, body := d.get(t, "/readyz"); code != 200 || !strings.HasPrefix(body, "degraded") || !strings.Contains(body, "list abuse-desk: its source is away: ") {
				t.Errorf("/readyz = %d %s", code, body)
			}
			d.waitMetric(t, `blockd_source_up{list="abuse-desk"} 0`)
			prints(t, 0, "\nabuse-desk  away: ", "lists", "-c", filepath.Join(dir, "config.toml"))
			if !d.turnsAway(t, "x@new.example") {
				t.Error("the copy does not serve while the store is away")
			}
			d.end(t)
			store.keepsSecret(t, d)
			d = serveIn(t, dir, "smtp", "http")
			if !d.turnsAway(t, "x@new.example") {
				t.Error("the copy does not serve after a restart")
			}
			testkit.Eventually(t, "state away", func() bool { return d.source(t).Error != "" })
			store.put(t, "back.example")
			store.away(t, false)
			began := time.Now()
			testkit.Eventually(t, "what came while the store was away", func() bool { return d.turnsAway(t, "x@back.example") })
			t.Logf("followed again after %v", time.Since(began)) // 10 s on a machine at rest
			testkit.Eventually(t, "state ok", func() bool { return d.source(t).State == "ok" })

			store.empty(t)
			if kind == "ldap" { // which tells of no deletion: all is read again, here and in the daemons of other stores
				testkit.Must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
			}
			for range 2 {
				testkit.Eventually(t, "state refused", func() bool { s := d.source(t); return s.State == "refused" && s.Class == "empty" })
				if s := d.source(t); s.Error == "" || !d.turnsAway(t, "x@bulk.example") {
					t.Errorf("a store that was emptied lets its senders pass: %+v", s)
				}
				d.end(t)
				store.keepsSecret(t, d)
				d = serveIn(t, dir, "smtp", "http")
			}
			if kind == "sqlite" {
				runs(t, "compile", "--accept", "-c", filepath.Join(dir, "config.toml"))
				testkit.Eventually(t, "what was accepted", func() bool { return !d.turnsAway(t, "x@bulk.example") && d.source(t).State == "ok" })
			}
		})
	}
}

// storeText is what blockd source ddl or lua prints for the list, if it prints anything.
func storeText(t *testing.T, dir string) string {
	t.Helper()
	c := testkit.Value(config.Load(filepath.Join(dir, "config.toml")))(t)
	source := testkit.Value(daemon.OpenSource(c.Lists[len(c.Lists)-1]))(t)
	defer source.Close()
	switch s := source.(type) {
	case interface{ DDL() string }:
		return s.DDL()
	case interface{ Lua() string }:
		return s.Lua()
	}
	return ""
}

// keepsSecret checks that the log has no password.
func (s remoteStore) keepsSecret(t *testing.T, d *running) {
	t.Helper()
	secret := cmp.Or(s.secret, storeSecret)
	if log := d.log.String(); strings.Contains(log, secret) || strings.Contains(log, slapdserver.Escape(secret)) {
		t.Error("the log shows a password")
	}
}
