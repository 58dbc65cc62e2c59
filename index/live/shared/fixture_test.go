package shared_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/index/live/shared/postgres"
	"blockd/index/live/shared/redis"
	"blockd/internal/testkit"
	"blockd/internal/testkit/postgresserver"
	"blockd/internal/testkit/redisserver"
	"blockd/mail/addr"
)

// database is the PostgreSQL of all tests here.
var database *postgresserver.Server

func TestMain(m *testing.M) {
	if task := os.Getenv(childOf); task != "" {
		fmt.Fprintln(os.Stderr, child(task))
		os.Exit(1)
	}
	postgresserver.Main(m, &database)
}

// engine is a server of a kind, and how engines of it are made.
type engine struct {
	kind     string
	dsn      string
	database string
	address  string                                                // HOST:PORT
	open     func(t testing.TB, link *testkit.Proxy) shared.Engine // by way of a proxy, if it is not nil
}

// onEach runs a test with each kind of engine.
func onEach(t *testing.T, test func(t *testing.T, e engine)) {
	t.Run("postgres", func(t *testing.T) { test(t, ofPostgres(t)) })
	t.Run("redis", func(t *testing.T) { test(t, ofRedis(t)) })
}

func ofRedis(t testing.TB) engine {
	t.Helper()
	return atRedis(redisserver.Start(t).Address)
}

func atRedis(address string) engine {
	return engine{kind: "redis", dsn: "redis://" + address, address: address, open: func(t testing.TB, link *testkit.Proxy) shared.Engine {
		to := address
		if link != nil {
			to = link.Address
		}
		return testkit.Value(openEngine("redis", "redis://"+to))(t)
	}}
}

func openEngine(kind, dsn string) (shared.Engine, error) {
	if kind == "postgres" {
		return postgres.Open(dsn, "eu-mx")
	}
	return redis.Open(dsn, "eu-mx")
}

// A link to an engine as a test has it, and as it is when nothing comes through.
var (
	whole       = testkit.Link{}
	unreachable = testkit.Link{Down: true}
)

func ofPostgres(t testing.TB) engine {
	t.Helper()
	if database == nil {
		testkit.Missing(t, "PostgreSQL is not installed (make peers)")
	}
	name := database.Database(t, "")
	return engine{kind: "postgres", dsn: database.URL("postgres", name), database: name, address: database.Address, open: func(t testing.TB, link *testkit.Proxy) shared.Engine {
		dsn := database.URL("postgres", name)
		if link != nil {
			dsn = fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", link.Address, name)
		}
		return testkit.Value(openEngine("postgres", dsn))(t)
	}}
}

// node is one machine of a fleet.
type node struct {
	*shared.Node
	set    *live.Set
	folder string
	log    *testkit.Log
	engine shared.Engine
	stop   func()
}

// begin begins a machine on a folder, and it follows until the test ends or stop.
func begin(t testing.TB, folder, kind string, e shared.Engine, change func(*shared.Options)) *node {
	t.Helper()
	set, err := live.Open(live.Settings{Folder: folder, MaxPerOwner: 3})
	testkit.Must(t, err)
	n := &node{set: set, folder: folder, log: &testkit.Log{}, engine: e}
	o := shared.Options{Engine: e, Kind: kind, Name: "eu-mx", Folder: folder, Set: set, Log: n.log.Logger(), Poll: time.Second, Key: "a key that the fleet has and its store has not"}
	if change != nil {
		change(&o)
	}
	n.Node = testkit.Value(shared.Open(o))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	running.Go(func() { set.Run(ctx, n.log.Logger()) })
	stopped := false
	n.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		running.Wait()
		n.Close()
		set.Close()
	}
	t.Cleanup(n.stop)
	return n
}

// linked begins a machine behind a link, and waits until it follows.
func linked(t testing.TB, e engine, change func(*shared.Options)) (*node, *testkit.Proxy) {
	t.Helper()
	link := testkit.NewProxy(t, e.address)
	n := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, e.open(t, link), change)
	n.follows(t)
	return n, link
}

func (n *node) follows(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, "the engine answers", func() bool { return n.Status().Up })
}

// fleet begins so many machines, and waits until all follow.
func fleet(t testing.TB, e engine, count int, change func(*shared.Options)) []*node {
	t.Helper()
	nodes := make([]*node, count)
	for i := range nodes {
		nodes[i] = begin(t, filepath.Join(t.TempDir(), "live"), e.kind, e.open(t, nil), change)
	}
	for _, n := range nodes {
		n.follows(t)
	}
	return nodes
}

func block(entry, why string) live.Change { return live.Change{Entry: entry, Why: why, Author: "anna"} }

func (n *node) apply(t *testing.T, changes ...live.Change) []live.Outcome {
	t.Helper()
	outcomes, err := n.set.Apply(changes...)
	if err != nil {
		t.Fatalf("%v\n%s", err, n.log)
	}
	return outcomes
}

// has returns the action of an entry of everybody in force on a machine; "" = there is none.
func (n *node) has(entry string) string {
	for e := range n.set.All() {
		if e.Text == entry {
			return e.Item.Action.String() + " " + e.Why
		}
	}
	return ""
}

func (n *node) eventually(t *testing.T, entry, want string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%s = %q", entry, want), func() bool { return n.has(entry) == want })
}

func everywhere(t *testing.T, nodes []*node, entry, want string) {
	t.Helper()
	for _, n := range nodes {
		n.eventually(t, entry, want)
	}
}

// told are all losses that a machine tells of.
func (n *node) told(t *testing.T) []shared.Lost {
	t.Helper()
	all, err := n.Lost(n.Status().Lost)
	testkit.Should(t, err)
	return all
}

func ownerOf(t *testing.T, text string) addr.Key {
	t.Helper()
	return testkit.Value(addr.ParseOwner(text))(t)
}

// content is what of an engine's rows counts.
func content(t *testing.T, of engine) map[string]live.Row {
	t.Helper()
	e := of.open(t, nil)
	defer e.Close()
	all := map[string]live.Row{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	testkit.Must(t, e.All(ctx, func(rows []live.Row, _ []string) error {
		for _, r := range rows {
			if r.Gone == 0 && r.Scope != shared.ScopeToken {
				all[r.String()] = r
			}
		}
		return nil
	}))
	return all
}

// same tells what differs between a machine and the engine's rows; "" = nothing.
func (n *node) same(rows map[string]live.Row) string {
	here := map[string]bool{}
	for e := range n.set.Every() {
		r := live.RowOf(e)
		here[r.String()] = true
		if rows[r.String()] != r {
			return fmt.Sprintf("here %+v, engine %+v", r, rows[r.String()])
		}
	}
	for name, r := range rows {
		if !here[name] {
			return fmt.Sprintf("missing here: %+v", r)
		}
	}
	return ""
}

// exec executes statements in the database of an engine.
func (e engine) exec(t *testing.T, sql string) {
	t.Helper()
	database.Exec(t, e.database, sql)
}

// empty takes everything out of an engine.
func (e engine) empty(t *testing.T) {
	t.Helper()
	if e.kind == "postgres" {
		e.exec(t, "drop table blockd_live; drop sequence blockd_live_rev")
	} else if err := client(t, e.address).FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}

// age makes what was removed eight days older, and has the engine forget it.
func (e engine) age(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if e.kind == "postgres" {
		e.exec(t, "update blockd_live set gone = gone - interval '8 days' where gone is not null")
	} else {
		c, old := client(t, e.address), time.Now().Add(-8*24*time.Hour).Unix()
		for _, field := range c.ZRange(ctx, "{blockd:eu-mx}:gone", 0, -1).Val() {
			testkit.Must(t, c.ZAdd(ctx, "{blockd:eu-mx}:gone", goredis.Z{Score: float64(old), Member: field}).Err())
		}
		testkit.Must(t, c.XTrimMaxLen(ctx, "{blockd:eu-mx}:log", 1).Err())
	}
	another := e.open(t, nil)
	defer another.Close()
	testkit.Must(t, another.Sweep(ctx))
}
