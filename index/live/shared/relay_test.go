package shared_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/index/live/shared/relay"
	"blockd/internal/testkit"
	"blockd/lists"
)

// counted is an engine that counts what it is asked.
type counted struct {
	shared.Engine
	changes, states, alls, sweeps, waits atomic.Int64
}

func (c *counted) Changes(ctx context.Context, since uint64, most int) (shared.Page, error) {
	c.changes.Add(1)
	return c.Engine.Changes(ctx, since, most)
}
func (c *counted) State(ctx context.Context) (shared.State, error) {
	c.states.Add(1)
	return c.Engine.State(ctx)
}
func (c *counted) Sweep(ctx context.Context) error {
	c.sweeps.Add(1)
	return c.Engine.Sweep(ctx)
}
func (c *counted) Wait(ctx context.Context) error {
	c.waits.Add(1)
	return c.Engine.Wait(ctx)
}
func (c *counted) All(ctx context.Context, each func([]live.Row, []string) error) error {
	c.alls.Add(1)
	return c.Engine.All(ctx, each)
}

// door answers as a node's HTTP door does, with or without the node behind it.
type door struct {
	*httptest.Server
	asked atomic.Int64
	node  atomic.Pointer[node]
}

func newDoor(t *testing.T) *door {
	d := &door{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.asked.Add(1)
		n := d.node.Load()
		since, _ := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64)
		wait, _ := strconv.Atoi(r.URL.Query().Get("wait"))
		if n == nil || r.Header.Get("Authorization") != "Bearer the-token-of-a-test" || r.URL.Path != "/v1/live/changes" {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(wait)*time.Second)
		defer cancel()
		c, err := n.Since(ctx, since)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		json.NewEncoder(w).Encode(c)
	}))
	t.Cleanup(func() {
		d.CloseClientConnections()
		d.Close()
	})
	return d
}

// A node behind relays learns of everything by these, and asks the store for nothing but what no relay knows.
func TestRelays(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		first := fleet(t, e, 1, nil)[0]
		first.apply(t, block("old.example", "before the node began"))
		away, there := newDoor(t), newDoor(t)
		there.node.Store(first)
		store := &counted{Engine: e.open(t, nil)}
		token := func() (string, error) { return "the-token-of-a-test", nil }
		idle := func() {}
		if c, ok := store.Engine.(interface{ Idle() }); ok {
			idle = c.Idle
		}
		b := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, relay.New(store, []string{away.URL, there.URL}, token, idle), func(o *shared.Options) { o.SumEvery = 2 * time.Second })
		b.eventually(t, "old.example", "block before the node began")
		testkit.Eventually(t, "the relay answers", func() bool { return b.Status().Up && there.asked.Load() > 3 })
		changes, alls := store.changes.Load(), store.alls.Load()
		states, sweeps := store.states.Load(), store.sweeps.Load()

		anna := ownerOf(t, "anna@here.example")
		first.apply(t, block("one.example", "1"), live.Change{Owner: anna.Text, Entry: "two.example", Action: lists.Allow})
		b.eventually(t, "one.example", "block 1")
		first.apply(t, live.Change{Entry: "one.example", Remove: true})
		b.eventually(t, "one.example", "")
		testkit.Must(t, first.AddToken(t.Context(), shared.Token{Name: "desk", Scope: "read", Sum: "sha256:ab", By: "anna"}, false))
		testkit.Eventually(t, "the token", func() bool {
			text, _ := os.ReadFile(b.TokenFile())
			return strings.Contains(string(text), "desk read")
		})
		summed := there.asked.Load()
		testkit.Within(t, "sums are compared", 20*time.Second, func() bool { return there.asked.Load() > summed+6 })
		testkit.Equal(t, "what differs", b.same(content(t, e)), "")
		testkit.Equal(t, "it differs", b.Status().Differs, 0)
		if store.changes.Load() != changes || store.alls.Load() != alls || store.states.Load() != states || store.sweeps.Load() != sweeps || store.waits.Load() != 0 {
			t.Errorf("the store was asked: changes %d, all %d, states %d, sweeps %d, waits %d more", store.changes.Load()-changes, store.alls.Load()-alls, store.states.Load()-states, store.sweeps.Load()-sweeps, store.waits.Load())
		}

		// What it changes itself acts at once, whether the relay knows of it or not, and is no loss.
		for _, name := range []string{"a.example", "b.example", "c.example"} {
			if o := b.apply(t, block(name, "by b")); o[0].Entry == nil || b.has(name) == "" {
				t.Errorf("%s: %+v", name, o)
			}
			first.eventually(t, name, "block by b")
		}
		// Without a relay it asks the store, and when there is one again it leaves the store alone.
		there.node.Store(nil)
		there.CloseClientConnections()
		first.apply(t, block("without.example", "w"))
		testkit.Within(t, "by the store", 20*time.Second, func() bool { return b.has("without.example") == "block w" })
		there.node.Store(first)
		first.apply(t, block("again.example", "a"))
		testkit.Within(t, "by the relay", 20*time.Second, func() bool { return b.has("again.example") == "block a" })
		testkit.Equal(t, "changes that are said to be lost", b.Status().Lost, 0)
		// A store that was emptied is noticed by both.
		e.empty(t)
		for _, n := range []*node{first, b} {
			testkit.Within(t, "the loss", time.Minute, func() bool { return n.Status().Lost >= 6 && n.has("again.example") == "" })
		}
		testkit.Equal(t, "rows that nodes have put into an empty store", len(content(t, e)), 0)
		lost := first.Status().Lost
		testkit.Equal(t, "dismissed", testkit.Value(first.Dismiss())(t), lost)
		first.apply(t, block("three.example", "3"))
	})
}

// A question for changes waits for one, ends when nobody waits any more, and is refused while the store is away.
func TestSince(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a, link := linked(t, e, nil)
		rev := a.apply(t, block("one.example", "1"))[0].Entry.Rev
		came := make(chan shared.Changes, 1)
		go func() {
			c, err := a.Since(t.Context(), rev)
			testkit.Should(t, err)
			came <- c
		}()
		next := a.apply(t, block("two.example", "2"))[0].Entry.Rev
		if c := <-came; len(c.Rows) != 1 || c.Rows[0].Rev != next || c.Rev != next || c.Rows[0].Why != "2" || c.TooOld {
			t.Errorf("Since() = %+v", c)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if c, err := a.Since(ended, next); err != nil || len(c.Rows) != 0 || c.Count != 2 {
			t.Errorf("nothing new: %+v, %v", c, err)
		}
		// A node that has just begun does not know what came before.
		a.stop()
		a = begin(t, a.folder, e.kind, e.open(t, link), nil)
		a.follows(t)
		c := testkit.Value(a.Since(t.Context(), rev-1))(t)
		testkit.Got(c.TooOld, len(c.Rows))(t, "too old", true, 0)
		link.Set(unreachable)
		testkit.Fails(a.set.Apply(block("three.example", "3")))(t, "away", live.ErrAway)
		testkit.Fails(a.Since(t.Context(), next))(t, "while the store is away", shared.ErrAsk)
	})
}

var soakRelayed = flag.Int("soak-relayed", 200, "how many nodes are behind one relay, with -soak")

// connections is how many connections an engine's server has, without that of who asks.
func (e engine) connections(t *testing.T) int {
	t.Helper()
	if e.kind == "postgres" {
		return len(database.Query(t, e.database, "select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"))
	}
	list := testkit.Value(client(t, e.address).ClientList(t.Context()).Result())(t)
	return strings.Count(list, "\n") - 1
}

// Many nodes behind one relay learn of each change by it, in the time that a few would take, and leave the database to others.
func TestManyNodesBehindARelay(t *testing.T) {
	count, changes := 20, 10
	if *soak {
		count, changes = *soakRelayed, 100
	}
	onEach(t, func(t *testing.T, e engine) {
		first := fleet(t, e, 1, nil)[0]
		first.apply(t, block("old.example", "before the nodes began"))
		door := newDoor(t)
		door.node.Store(first)
		// The relay has two: one for questions, and one for hints, which it makes when it begins to wait.
		testkit.Eventually(t, "the relay's own connections", func() bool { return e.kind == "redis" || e.connections(t) == 2 })
		alone := e.connections(t)
		stop := testkit.PeakHeap()
		nodes := make([]*node, count)
		var all sync.WaitGroup
		for part := range 8 { // some begin at a time, as a fleet does
			all.Go(func() {
				for i := part; i < count; i += 8 {
					store := e.open(t, nil)
					idle := func() {}
					if c, ok := store.(interface{ Idle() }); ok {
						idle = c.Idle
					}
					r := relay.New(store, []string{door.URL}, func() (string, error) { return "the-token-of-a-test", nil }, idle)
					nodes[i] = begin(t, filepath.Join(t.TempDir(), "live"), e.kind, r, func(o *shared.Options) { o.Poll = relay.Poll })
				}
			})
		}
		all.Wait()
		for _, n := range nodes {
			testkit.Within(t, "all have begun", 2*time.Minute, func() bool { return n.has("old.example") != "" })
		}
		testkit.Within(t, "the database is left alone", 2*time.Minute, func() bool { return e.kind == "redis" || e.connections(t) == alone })
		before := testkit.CPUTime(t)
		var took []time.Duration
		for i := range changes {
			row := live.Row{Entry: fmt.Sprintf("x%d@bench.example", i), Scope: "exact", Action: "block"}
			begun := time.Now()
			first.apply(t, block(row.Entry, "for all"))
			for left := slices.Clone(nodes); len(left) > 0; runtime.Gosched() {
				left = slices.DeleteFunc(left, func(n *node) bool {
					if n.set.Get(&row) == nil {
						return false
					}
					took = append(took, time.Since(begun))
					return true
				})
				if time.Since(begun) > time.Minute {
					t.Fatalf("after a minute %d nodes do not know of change %d", len(left), i)
				}
			}
		}
		slices.Sort(took)
		heap := stop()
		t.Logf("%d nodes behind a relay: a change acts on one after %s (half), %s (99 %%), %s (all); %d connections to the database, of which the relay has %d; heap of all %d MB at its peak; %.1f s of processor time for %d changes",
			count, took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), e.connections(t), alone, heap>>20, (testkit.CPUTime(t) - before).Seconds(), changes)
		for _, n := range nodes {
			if got := n.same(content(t, e)); got != "" {
				t.Fatal(got)
			}
		}
	})
}
