package shared_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/index/live/shared/relay"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/lists"
)

var soak = flag.Bool("soak", false, "10,000 random changes, and more kills")

// childOf is the variable that makes TestMain a machine that changes entries without end until it is killed: its value is a childTask.
const childOf = "BLOCKD_TEST_SHARED_CHILD"

type childTask struct {
	Folder, Kind, DSN string
	Seed              uint64
}

// ledger has the newest acknowledged change of each entry.
type ledger struct {
	mu      sync.Mutex
	newest  map[string]live.Row
	changes int
}

func (l *ledger) add(r live.Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	if r.Rev > l.newest[r.String()].Rev {
		l.newest[r.String()] = r
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes
}

// draw is a random batch of changes of few entries.
func draw(rng *rand.Rand, n int) []live.Change {
	batch := make([]live.Change, 1+rng.IntN(3))
	for i := range batch {
		c := live.Change{Entry: fmt.Sprintf("x%d@w.example", rng.IntN(120)), Why: fmt.Sprintf("%d \"%d\", it's", n, rng.IntN(1000)), Author: "anna", Remove: rng.IntN(4) == 0}
		if rng.IntN(3) == 0 {
			c.Entry = fmt.Sprintf("w%d.example", rng.IntN(40))
		}
		if rng.IntN(5) == 0 {
			c.Owner = "here.example"
		}
		if rng.IntN(3) == 0 {
			c.Action = lists.Allow
		}
		batch[i] = c
	}
	return batch
}

// change makes random changes, and notes what was acknowledged.
func change(set *live.Set, rng *rand.Rand, n int, note func(live.Row)) {
	batch := draw(rng, n)
	outcomes, err := set.Apply(batch...)
	if err != nil {
		return
	}
	for _, o := range outcomes {
		switch {
		case o.Rev == 0:
		case o.Entry != nil:
			note(live.RowOf(o.Entry))
		default:
			r := live.RowOf(o.Was)
			r.Gone, r.Rev = 1, o.Rev
			note(r)
		}
	}
}

func child(text string) error {
	var task childTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return err
	}
	e, err := openEngine(task.Kind, task.DSN)
	if err != nil {
		return err
	}
	set, err := live.Open(live.Settings{Folder: task.Folder})
	if err != nil {
		return err
	}
	n, err := shared.Open(shared.Options{Engine: e, Kind: task.Kind, Name: "eu-mx", Folder: task.Folder, Set: set, Log: (&testkit.Log{}).Logger()})
	if err != nil {
		return err
	}
	go n.Run(context.Background())
	rng, out := rand.New(rand.NewPCG(task.Seed, 7)), json.NewEncoder(os.Stdout)
	for i := 0; ; i++ {
		change(set, rng, i, func(r live.Row) { out.Encode(r) })
	}
}

// killed is a machine in a process of its own, which is killed and begun again.
type killed struct {
	task childTask
	cmd  *exec.Cmd
	done chan struct{}
}

func (k *killed) begin(t *testing.T, note func(live.Row)) {
	t.Helper()
	text := testkit.Value(json.Marshal(k.task))(t)
	k.task.Seed++
	k.cmd = exec.Command(os.Args[0])
	k.cmd.Env = append(os.Environ(), childOf+"="+string(text))
	k.cmd.Stderr = os.Stderr
	out := testkit.Value(k.cmd.StdoutPipe())(t)
	testkit.Must(t, k.cmd.Start())
	k.done = make(chan struct{})
	go func() {
		defer close(k.done)
		for in := bufio.NewScanner(out); in.Scan(); {
			var r live.Row
			if json.Unmarshal(in.Bytes(), &r) == nil { // the last line may be cut
				note(r)
			}
		}
	}()
}

func (k *killed) kill() {
	k.cmd.Process.Signal(unix.SIGKILL)
	<-k.done
	k.cmd.Wait()
}

// Four machines change entries at random, one of them behind a relay, while links break, one of the machines is killed, and so is the engine. In the end all have
// what the engine has, and it has each change that was acknowledged, or a later one.
func TestRandomChangesFromSeveralMachines(t *testing.T) {
	want, kills := 600, 2
	if *soak {
		want, kills = 10_000, 10
	}
	test := func(t *testing.T, e engine, crash func()) {
		var book ledger
		book.newest = map[string]live.Row{}
		links := []*testkit.Proxy{testkit.NewProxy(t, e.address), testkit.NewProxy(t, e.address)}
		var nodes []*node
		for _, l := range links {
			n := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, e.open(t, l), func(o *shared.Options) { o.SumEvery = 2 * time.Second })
			n.follows(t)
			nodes = append(nodes, n)
		}
		door := newDoor(t) // of the first machine, which is a relay: while it is cut off, the fourth asks the database
		door.node.Store(nodes[0])
		nodes = append(nodes, begin(t, filepath.Join(t.TempDir(), "live"), e.kind, relay.New(e.open(t, links[1]), []string{door.URL}, func() (string, error) { return "the-token-of-a-test", nil }, nil), func(o *shared.Options) {
			o.SumEvery = 2 * time.Second
		}))
		k := &killed{task: childTask{Folder: filepath.Join(t.TempDir(), "live"), Kind: e.kind, DSN: e.dsn, Seed: 1}}
		var writers sync.WaitGroup
		ctx, stop := context.WithCancel(context.Background())
		for i, n := range nodes {
			writers.Go(func() {
				for c, rng := 0, rand.New(rand.NewPCG(uint64(i), 3)); ctx.Err() == nil; c++ {
					if change(n.set, rng, c, book.add); !n.Status().Up {
						select { // nothing is changed meanwhile
						case <-ctx.Done():
						case <-time.After(10 * time.Millisecond):
						}
					}
				}
			})
		}
		reach := func(part int) {
			at := want * part / (2 * kills)
			testkit.Within(t, "changes", 5*time.Minute, func() bool { return book.count() >= at })
		}
		for i := range kills {
			k.begin(t, book.add)
			reach(2*i + 1)
			links[i%2].Set(testkit.Link{Down: i%4 < 2, Mute: i%4 >= 2})
			if i == kills/2 {
				crash()
			}
			reach(2*i + 2)
			links[i%2].Set(whole)
			k.kill()
		}
		stop()
		writers.Wait()
		last := begin(t, k.task.Folder, e.kind, e.open(t, nil), nil) // it was killed in the midst of something
		for _, n := range append(nodes, last) {
			testkit.Within(t, "all is equal to the engine", time.Minute, func() bool { return n.Status().Up && n.same(content(t, e)) == "" })
			if s := n.Status(); s.Lost != 0 {
				t.Errorf("%d changes are said to be lost: %+v", s.Lost, n.told(t))
			}
		}
		all := everything(t, e)
		for name, r := range book.newest {
			got := all[name]
			got.Gone = min(got.Gone, 1)
			if r.Gone == 1 && got.Gone == 1 && got.Rev == r.Rev {
				continue
			}
			if got.Rev < r.Rev || got.Rev == r.Rev && got != r {
				t.Errorf("acknowledged %+v, the engine has %+v", r, got)
			}
		}
		t.Logf("%d acknowledged changes of %d entries", book.count(), len(book.newest))
	}
	t.Run("postgres", func(t *testing.T) {
		e := ofPostgres(t)
		test(t, e, func() {
			testkit.Should(t, database.Crash())
			testkit.Must(t, database.Start())
		})
	})
	t.Run("redis", func(t *testing.T) {
		options := []string{"--appendonly", "yes", "--appendfsync", "always"}
		server := redisserver.Start(t, options...)
		test(t, atRedis(server.Address), func() {
			server.Kill()
			redisserver.StartAt(t, server.Address, append(options, "--dir", server.Dir)...)
		})
	})
}

// everything are all rows of an engine, those of removals too.
func everything(t *testing.T, of engine) map[string]live.Row {
	t.Helper()
	e := of.open(t, nil)
	defer e.Close()
	all := map[string]live.Row{}
	testkit.Must(t, e.All(context.Background(), func(rows []live.Row, _ []string) error {
		for _, r := range rows {
			all[r.String()] = r
		}
		return nil
	}))
	return all
}

// A Redis that is killed, and begins again with what its disk had some time ago, has lost changes: each of them is told of.
func TestEachLossOfARedisIsToldOf(t *testing.T) {
	server := redisserver.Start(t)
	e := atRedis(server.Address)
	nodes := fleet(t, e, 3, nil)
	book := ledger{newest: map[string]live.Row{}}
	write := func(changes int, seed uint64) {
		var all sync.WaitGroup
		for i, n := range nodes {
			all.Go(func() {
				for c, rng := 0, rand.New(rand.NewPCG(seed, uint64(i))); c < changes; c++ {
					change(n.set, rng, c, book.add)
				}
			})
		}
		all.Wait()
		for _, n := range nodes {
			testkit.Eventually(t, "all have all", func() bool { return n.same(content(t, e)) == "" })
		}
	}
	write(100, 1)
	testkit.Must(t, client(t, server.Address).Save(context.Background()).Err())
	before := maps.Clone(book.newest)
	write(20, 2)
	server.Kill()
	redisserver.StartAt(t, server.Address, "--dir", server.Dir)
	missing := 0
	for name, r := range book.newest {
		if was, known := before[name]; (!known || was.Rev != r.Rev) && (known && was.Gone == 0 || r.Gone == 0) {
			missing++
		}
	}
	for _, n := range nodes {
		testkit.Eventually(t, "the losses", func() bool { return n.Status().Lost >= missing })
		told := map[string]bool{}
		for _, l := range n.told(t) {
			told[l.Row.String()] = true
		}
		for name, r := range book.newest {
			if was := before[name]; was.Rev != r.Rev && (was.Rev != 0 && was.Gone == 0 || r.Gone == 0) && !told[name] {
				t.Errorf("not told of: %+v, before %+v", r, was)
			}
		}
		testkit.Eventually(t, "all is equal to the engine", func() bool { return n.same(content(t, e)) == "" })
	}
	testkit.AtLeast(t, "rows lost", missing, 1)
}
