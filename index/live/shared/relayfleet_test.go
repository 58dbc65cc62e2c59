package shared_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/index/live/shared/relay"
	"blockd/internal/testkit"
)

var soakRelayed = flag.Int("soak-relayed", 200, "how many nodes are behind one relay, with -soak")

// connections is how many connections an engine's server has, without that of who asks.
func (e engine) connections(t *testing.T) int {
	t.Helper()
	if e.kind == "postgres" {
		return len(database.Query(t, e.database, "select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"))
	}
	list, err := client(t, e.address).ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
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
