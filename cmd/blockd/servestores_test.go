//go:build !nosql

package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	"blockd/doors/httpapi"
	"blockd/internal/testkit"
	"blockd/internal/testkit/mariadbserver"
	"blockd/internal/testkit/postgresserver"
	"blockd/internal/testkit/redisserver"
	"blockd/internal/testkit/slapdserver"
	"blockd/sources/mirror"
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
	case interface{ DDL() (string, error) }:
		return testkit.Value(s.DDL())(t)
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
	edit(t, db, testkit.Value(source.(interface{ DDL() (string, error) }).DDL())(t))
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

// TestAskedBehindForeignFilter: a list is asked behind a Redisson filter that `blockd filter push` has put into its Redis. A filter that is
// pushed anew counts a moment later; one that is gone, or is no filter, changes nothing.
func TestAskedBehindForeignFilter(t *testing.T) {
	server := redisserver.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Address})
	t.Cleanup(func() { client.Close() })
	dir := t.TempDir()
	push := func(entries string) {
		t.Helper()
		list := writeFile(t, dir, "pushed.txt", entries)
		bdx := filepath.Join(dir, "pushed.bdx")
		runs(t, "compile", "-o", bdx, list)
		runs(t, "filter", "push", "-i", bdx, "--as", "redisson", "redis://"+server.Address, "bl")
	}
	put := func(entries ...any) {
		t.Helper()
		testkit.Must(t, client.SAdd(t.Context(), "blocked", entries...).Err())
	}
	writeFile(t, dir, "lists/a.txt", "other.example\n")
	writeFile(t, dir, "config.toml", anyPorts+fmt.Sprintf("[[list]]\nname = \"abuse-desk\"\n[list.source]\nkind = \"redis\"\nmode = \"ask\"\ndsn = \"redis://%s\"\nkey = \"blocked\"\nfilter = \"redisson:bl\"\nevery = \"1s\"\ntimeout = \"10s\"\nnegative_ttl = \"1s\"\n", server.Address))
	put("bulk.example", "ann@there.example", "late.example")
	push("bulk.example\nann@there.example\ngone.example\n") // the Redis does not have the last
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "upstream ready")
	testkit.Eventually(t, "the entries to act", func() bool { return d.turnsAway(t, "x@bulk.example") })
	for sender, want := range map[string]bool{"ann@there.example": true, "bob@there.example": false, "x@gone.example": false, "x@late.example": false, "x@sub.bulk.example": true} {
		testkit.Equal(t, fmt.Sprintf("%s is turned away", sender), d.turnsAway(t, sender), want)
	}
	push("bulk.example\nann@there.example\nlate.example\n")
	testkit.Eventually(t, "the new filter to count", func() bool { return d.turnsAway(t, "x@late.example") })

	for what, damage := range map[string]func() error{
		"gone": func() error { return client.Del(t.Context(), "bl", "{bl}:config").Err() },
		"no filter": func() error {
			return errors.Join(client.Del(t.Context(), "bl").Err(), client.LPush(t.Context(), "bl", "no filter").Err())
		},
	} {
		testkit.Must(t, damage())
		testkit.Eventually(t, what+" to be told", func() bool { return d.source(t).Error != "" })
		if !d.turnsAway(t, "x@bulk.example") || d.turnsAway(t, "bob@there.example") {
			t.Errorf("%s: the filter that was read before does not serve", what)
		}
		testkit.Got(d.get(t, "/readyz"))(t, fmt.Sprintf("%s: /readyz", what), 200, "degraded…")
		testkit.Must(t, client.Del(t.Context(), "bl", "{bl}:config").Err())
		push("bulk.example\nann@there.example\nlate.example\n")
		testkit.Eventually(t, "the filter to be read again", func() bool { return d.source(t).Error == "" })
	}
}

// A publisher reads the keys of a store, and a node asks the same store by the filter that comes with the snapshot: it never reads the keys.
func TestAFilterTravelsWithTheSnapshot(t *testing.T) {
	server := redisserver.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Address})
	t.Cleanup(func() { client.Close() })
	put := func(entry string) {
		t.Helper()
		testkit.Must(t, client.SAdd(t.Context(), "blocked", entry).Err())
	}
	put("asked.example")
	source := fmt.Sprintf("[[list]]\nname = \"huge\"\n[list.source]\nkind = \"redis\"\nmode = \"ask\"\ndsn = \"redis://%s/0\"\nkey = \"blocked\"\nevery = \"1s\"\ntimeout = \"10s\"\nnegative_ttl = \"1s\"\n", server.Address)

	dir, store, key := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "publish.key")
	runs(t, "publish", "keygen", key)
	testkit.Write(t, filepath.Join(dir, "lists", "bad.txt"), "bad.example\n")
	testkit.Write(t, filepath.Join(dir, "config.toml"), anyPorts+source+fmt.Sprintf("[publish]\nto = \"file://%s\"\nkey_file = %q\n", store, key))
	publisher := serveIn(t, dir, "smtp", "http")
	// publish reads the filter from its file, which a daemon writes when it has begun to use it, and before it builds the next one.
	publish := func(sender, why string) {
		t.Helper()
		publisher.waitBlocked(t, sender, true)
		built := func() int { return strings.Count(publisher.log.String(), "filter of a list built from its store") }
		n := built()
		testkit.Eventually(t, "the filter to be written", func() bool { return built() > n })
		publisher.must(t, "publish", "--why", why)
	}
	publish("x@asked.example", "the filter is there")

	public := strings.TrimSpace(string(testkit.Read(t, key+".pub")))
	public = public[strings.LastIndex(public, "\n")+1:]
	base, _, _ := strings.Cut(anyPorts, "[[list]]")
	node := func(list string) string {
		return base + list + fmt.Sprintf("[fleet]\nfrom = \"file://%s\"\nkeys = [\"minisign:%s\"]\nevery = \"1s\"\nnode = \"real\"\n", store, public)
	}
	follower := t.TempDir()
	testkit.Write(t, filepath.Join(follower, "config.toml"), node(source+"filter = \"snapshot\"\n"))
	testkit.Must(t, client.ConfigResetStat(t.Context()).Err())
	d := serveIn(t, follower, "smtp", "http")
	d.waitBlocked(t, "x@bad.example", true)
	d.waitBlocked(t, "x@asked.example", true)
	d.waitBlocked(t, "x@clear.example", false)

	// What is new in the store acts with the next sequence.
	put("later.example")
	publish("x@later.example", "a new filter")
	d.waitBlocked(t, "x@later.example", true)

	// What only its own list of that name can do is said at once, or by the state of the source.
	testkit.Write(t, filepath.Join(follower, "config.toml"), base+source+"filter = \"snapshot\"\n")
	if code, _, errs := blockd(t, "", "config", "--check", "-c", filepath.Join(follower, "config.toml")); code == 0 || !strings.Contains(errs, "goes with [fleet]") {
		t.Errorf("without [fleet]: %d %s", code, errs)
	}
	other := t.TempDir()
	testkit.Write(t, filepath.Join(other, "config.toml"), node(strings.Replace(source, "huge", "unknown", 1)+"filter = \"snapshot\"\n"))
	o := serveIn(t, other, "smtp", "http")
	testkit.Eventually(t, "the reason", func() bool {
		_, text := o.get(t, "/readyz")
		return strings.Contains(text, "has no filter of this list")
	})
}

// TestDoctorOfAskedList: the doctor asks the store of a list for entries that it has, and says what would go wrong.
func TestDoctorOfAskedList(t *testing.T) {
	server := redisserver.Start(t, "--requirepass", storeSecret)
	client := redis.NewClient(&redis.Options{Addr: server.Address, Password: storeSecret})
	t.Cleanup(func() { client.Close() })
	dir := t.TempDir()
	dsn := "redis://:" + storeSecret + "@" + server.Address + "/0"
	writeFile(t, dir, "store.dsn", dsn+"\n")
	writeFile(t, dir, "lists/a.txt", "other.example\n")
	path := filepath.Join(dir, "config.toml")
	writeFile(t, dir, "config.toml", anyPorts+"[[list]]\nname = \"asked\"\n[list.source]\nkind = \"redis\"\nmode = \"ask\"\ndsn_file = \"store.dsn\"\nkey = \"blocked\"\nevery = \"1s\"\ntimeout = \"10s\"\n")
	says := func(want string) {
		t.Helper()
		_, stdout, stderr := blockd(t, "", "doctor", "-c", path)
		if !strings.Contains(strings.Join(strings.Fields(stdout), " "), want) { // lines are wrapped
			t.Errorf("the doctor says\n%s%s\nwant %s", stdout, stderr, want)
		}
		testkit.Lacks(t, stdout+stderr, storeSecret)
	}
	says("/0: the key is not there")
	put := func(entries ...any) {
		t.Helper()
		testkit.Must(t, client.SAdd(t.Context(), "blocked", entries...).Err())
	}
	put("bulk.example", "a@there.example")
	says("but there is no filter yet, so nothing is asked")
	d := serveIn(t, dir, "smtp", "http")
	testkit.Eventually(t, "the entries to act", func() bool { return d.turnsAway(t, "x@bulk.example") })
	d.end(t)
	says("at most, and knows the 2 entries that were tried")
	put("new.example")
	says("list asked: its filter lacks 1 of 3 entries, which are never asked for")
	writeFile(t, dir, "store.dsn", strings.Replace(dsn, storeSecret, "wrong", 1)+"\n")
	says("list asked: its redis cannot be read, and what its filter holds is still asked for: auth:")
}

// TestBrokenLinks: over a link that is slow, cut or reset at any octet, a read of a store is complete, or the copy stays and the error
// has the class of a link. Nothing of the driver is left after Close.
func TestBrokenLinks(t *testing.T) {
	const patience = 500 * time.Millisecond // of a read over a link that says too little
	links := map[string]testkit.Link{
		"down": {Down: true}, "mute": {Mute: true}, "an octet a second": {Latency: time.Second, Single: true}, "latency": {Latency: 20 * time.Millisecond},
	}
	for _, after := range []int64{1, 60, 700, 4000} {
		links[fmt.Sprintf("cut after %d", after)] = testkit.Link{Cut: after}
		links[fmt.Sprintf("reset after %d", after)] = testkit.Link{Cut: after, Reset: true}
	}
	for kind, start := range stores {
		t.Run(kind, func(t *testing.T) {
			store := start(t)
			if store.address == "" {
				t.Skip("a file has no link")
			}
			proxy := testkit.NewProxy(t, store.address)
			dir := t.TempDir()
			writeFile(t, dir, "store.dsn", strings.Replace(store.dsn, "ADDRESS", proxy.Address, 1)+"\n")
			writeFile(t, dir, "config.toml", store.config(kind))
			if store.prepare != nil {
				store.prepare(t, storeText(t, dir))
			}
			c := testkit.Value(config.Load(filepath.Join(dir, "config.toml")))(t)
			var many []string
			for i := range 200 {
				many = append(many, fmt.Sprintf("n%d.bulk.example", i))
			}
			store.put(t, many...)
			copied, err := mirror.Open(mirror.Options{Folder: filepath.Join(dir, "copy")})
			testkit.Must(t, err)
			defer copied.Close()
			// read reads over a link, with a driver of its own.
			read := func(link testkit.Link) (err error) {
				proxy.Set(link)
				source := testkit.Value(daemon.OpenSource(c.Lists[len(c.Lists)-1]))(t)
				limit := time.Minute
				if link.Mute || link.Single {
					limit = patience
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				ended := make(chan error, 1)
				go func() { _, err := copied.Read(ctx, source); ended <- errors.Join(err, source.Close()) }()
				testkit.Eventually(t, "the read to end", func() bool {
					select {
					case err = <-ended:
						return true
					default:
						return false
					}
				})
				proxy.Set(testkit.Link{Down: true})
				return err
			}
			testkit.Must(t, read(testkit.Link{}))
			idle, n := runtime.NumGoroutine(), int64(200)
			for name, link := range links {
				store.put(t, fmt.Sprintf("more%d.bulk.example", n))
				before, _ := copied.State()
				err := read(link)
				n++
				after, _ := copied.State()
				e, _ := errors.AsType[*mirror.Error](err)
				switch {
				case err == nil && after.Entries() != n:
					t.Errorf("%s: %d entries of %d, and no error", name, after.Entries(), n)
				case err == nil:
				case after.Entries() != before.Entries():
					t.Errorf("%s: %v, and the copy has changed from %d entries to %d", name, err, before.Entries(), after.Entries())
				case e == nil || !slices.Contains([]mirror.Class{mirror.ClassUnreachable, mirror.ClassTimeout, mirror.ClassTruncated}, e.Class):
					t.Errorf("%s: %v, want the class of a link", name, err)
				case (link.Mute || link.Single) && e.Class != mirror.ClassTimeout:
					t.Errorf("%s: %v, want %s", name, err, mirror.ClassTimeout)
				case link.Latency > 0 && !link.Single:
					t.Errorf("%s: %v", name, err)
				case strings.Contains(err.Error(), storeSecret) || strings.Contains(err.Error(), "\n"):
					t.Errorf("%s: an error that shows too much: %q", name, err)
				}
			}
			testkit.Eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= idle })
		})
	}
}

// TestTheLastRowCanBeTakenOut of a table, whether it is followed or read as a whole; that a table has gone lets
// nobody in.
func TestTheLastRowCanBeTakenOut(t *testing.T) {
	for _, changes := range []string{"log", "none"} {
		t.Run(changes, func(t *testing.T) {
			dir := t.TempDir()
			db := sendersIn(t, dir)
			writeFile(t, dir, "config.toml", strings.Replace(senders, `"log"`, `"`+changes+`"`, 1))
			d := serveIn(t, dir, "smtp", "http")
			testkit.Eventually(t, "the table to act", func() bool { return d.turnsAway(t, "x@bulk.example") })
			edit(t, db, "delete from senders")
			testkit.Eventually(t, "the last row to be gone", func() bool { return !d.turnsAway(t, "x@bulk.example") })
			edit(t, db, "insert into senders (entry) values ('more.example')")
			testkit.Eventually(t, "another row to act", func() bool { return d.turnsAway(t, "x@more.example") })
			if changes == "log" {
				return // what its log does not tell is seen after a minute
			}
			edit(t, db, "drop table senders")
			testkit.Eventually(t, "the source to be told of", func() bool { return d.source(t).State != "ok" })
			if !d.turnsAway(t, "x@more.example") {
				t.Error("a table that has gone frees a sender")
			}
		})
	}
}
