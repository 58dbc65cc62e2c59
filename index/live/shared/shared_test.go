package shared_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/internal/testkit"
	"blockd/lists"
)

// What one machine adds, changes and removes acts on all.
func TestAnEntryActsOnAll(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		nodes := fleet(t, e, 3, nil)
		a, b, c := nodes[0], nodes[1], nodes[2]
		o := a.apply(t, block("spam@bad.example", "phish"))
		if o[0].Entry == nil || o[0].Entry.Rev == 0 || o[0].Was != nil {
			t.Errorf("added: %+v", o[0])
		}
		everywhere(t, nodes, "spam@bad.example", "block phish")
		o = b.apply(t, live.Change{Entry: "spam@bad.example", Action: lists.Allow, Why: "a mistake", Author: "ben"})
		testkit.MustEqual(t, "replaced", o[0].Was != nil, true)
		testkit.Equal(t, "replaced", o[0].Was.Why, "phish")
		everywhere(t, nodes, "spam@bad.example", "allow a mistake")
		if o := b.apply(t, live.Change{Entry: "spam@bad.example", Action: lists.Allow, Why: "a mistake", Author: "ben"}); o[0].Changed() {
			t.Errorf("the same again: %+v", o[0])
		}
		if o := c.apply(t, live.Change{Entry: "spam@bad.example", Remove: true}); o[0].Entry != nil || o[0].Was == nil {
			t.Errorf("removed: %+v", o[0])
		}
		everywhere(t, nodes, "spam@bad.example", "")
		if o := c.apply(t, live.Change{Entry: "spam@bad.example", Remove: true}); o[0].Changed() {
			t.Errorf("removed again: %+v", o[0])
		}
	})
}

// An entry of an owner is another one than everybody's about the same, and its owner may have so many in the whole fleet.
func TestOwnersAreOfTheFleet(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		nodes := fleet(t, e, 2, nil)
		a, b := nodes[0], nodes[1]
		anna := ownerOf(t, "anna@here.example")
		a.apply(t, block("bad.example", "everybody's"), live.Change{Owner: anna.Text, Entry: "bad.example", Action: lists.Allow})
		b.apply(t, live.Change{Owner: anna.Text, Entry: "b.example"}, live.Change{Owner: anna.Text, Entry: "c.example"})
		testkit.Fails(b.set.Apply(live.Change{Owner: anna.Text, Entry: "d.example"}))(t, "a fourth entry on B", live.ErrOwnerFull)
		testkit.Fails(a.set.Apply(live.Change{Owner: anna.Text, Entry: "d.example"}))(t, "a fourth entry on A", live.ErrOwnerFull)
		a.apply(t, live.Change{Owner: anna.Text, Entry: "b.example", Remove: true}, live.Change{Owner: anna.Text, Entry: "d.example"})
		want, tag := a.set.Of(anna)
		testkit.MustEqual(t, "A has entries of the owner", len(want), 3)
		b.eventually(t, "bad.example", "block everybody's")
		testkit.Eventually(t, "the same tag", func() bool {
			_, same := b.set.Of(anna)
			return same == tag
		})
		testkit.Value(b.set.ApplyIf(anna, tag, live.Change{Owner: anna.Text, Entry: "c.example", Remove: true}))(t)
	})
}

// Of two tools that know one revision one wins, and the other is told what there is now.
func TestIfRev(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		nodes := fleet(t, e, 2, nil)
		a, b := nodes[0], nodes[1]
		rev := a.apply(t, block("bad.example", "first"))[0].Entry.Rev
		none := uint64(0)
		var stale *live.RevisionError
		c := block("bad.example", "other")
		c.IfRev = &none
		if _, err := b.set.Apply(c); !errors.As(err, &stale) || stale.Was == nil || stale.Was.Why != "first" || stale.Was.Rev != rev {
			t.Errorf("there was to be none: %v", err)
		}
		c.IfRev = &rev
		next := b.apply(t, c)[0].Entry.Rev
		if next <= rev {
			t.Errorf("revision %d after %d", next, rev)
		}
		c.Why = "third"
		if _, err := a.set.Apply(block("not.example", "with it"), c); !errors.As(err, &stale) || stale.Was.Why != "other" {
			t.Errorf("an old revision: %v", err)
		}
		if a.eventually(t, "bad.example", "block other"); a.has("not.example") != "" {
			t.Error("half of a batch was made")
		}
		if _, err := a.set.Apply(live.Change{Entry: "bad.example", Remove: true, IfRev: &rev}); !errors.As(err, &stale) {
			t.Errorf("removal by an old revision: %v", err)
		}
		a.apply(t, live.Change{Entry: "bad.example", Remove: true, IfRev: &next})
		c.IfRev = &none
		b.apply(t, c)
	})
}

// A machine that begins knows what it knew without the engine, and learns the rest from it.
func TestBeginsWithoutTheEngine(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		nodes := fleet(t, e, 2, nil)
		a, b := nodes[0], nodes[1]
		a.apply(t, block("one.example", "1"), block("two.example", "2"))
		b.eventually(t, "two.example", "block 2")
		b.stop()
		a.apply(t, live.Change{Entry: "one.example", Remove: true}, block("three.example", "3"))
		link := testkit.NewProxy(t, e.address)
		link.Set(unreachable)
		b = begin(t, b.folder, e.kind, e.open(t, link), nil)
		testkit.Got(b.has("one.example"), b.has("two.example"))(t, "without the engine", "block 1", "block 2")
		testkit.AtLeast(t, "revision of the journal", b.set.Cursor().Revision, 1)
		link.Set(whole)
		b.eventually(t, "three.example", "block 3")
		b.eventually(t, "one.example", "")
		testkit.Must(t, b.set.Tidy())
		testkit.Equal(t, "what differs", b.same(content(t, e)), "")
	})
}

// late is an engine that tells of no change while it is on.
type late struct {
	shared.Engine
	on   atomic.Bool
	last shared.Page
}

func (l *late) Changes(ctx context.Context, since uint64, most int) (shared.Page, error) {
	if l.on.Load() {
		return shared.Page{Epoch: l.last.Epoch, Rev: since, Now: time.Now()}, nil
	}
	p, err := l.Engine.Changes(ctx, since, most)
	if err == nil {
		l.last = p
	}
	return p, err
}

// A tag of an owner's entries that is old everywhere but on this machine changes nothing: the engine compares.
func TestIfMatchIsOfTheFleet(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a := fleet(t, e, 1, nil)[0]
		behind := &late{Engine: e.open(t, nil)}
		b := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, behind, nil)
		anna := ownerOf(t, "anna@here.example")
		own := func(entry string, action lists.Action) live.Change {
			return live.Change{Owner: anna.Text, Entry: entry, Action: action}
		}
		tagOf := func(n *node) string { _, tag := n.set.Of(anna); return tag }
		same := func(what string) {
			testkit.Eventually(t, what, func() bool { return b.Status().Up && tagOf(a) == tagOf(b) })
		}
		a.apply(t, own("one.example", lists.Block), own("two.example", lists.Block), live.Change{Owner: "ben@here.example", Entry: "one.example"})
		same("both have them")
		for _, tt := range []struct {
			name    string
			changes []live.Change
		}{
			{"another entry", []live.Change{own("three.example", lists.Block)}},
			{"another action", []live.Change{own("one.example", lists.Allow)}},
			{"one for another", []live.Change{{Owner: anna.Text, Entry: "three.example", Remove: true}, own("four.example", lists.Allow)}},
			{"changed twice at once", []live.Change{own("one.example", lists.Block), own("one.example", lists.Allow)}},
			{"one entry less", []live.Change{{Owner: anna.Text, Entry: "two.example", Remove: true}}},
			{"there and back, and another", []live.Change{own("five.example", lists.Block), {Owner: anna.Text, Entry: "five.example", Remove: true}, own("one.example", lists.Block)}},
		} {
			name, changes := tt.name, tt.changes
			behind.on.Store(true)
			old := tagOf(b)
			testkit.Value(a.set.ApplyIf(anna, tagOf(a), changes...))(t)
			if tagOf(a) == old {
				t.Fatalf("%s: the tag is as before", name)
			}
			testkit.Fails(b.set.ApplyIf(anna, tagOf(b), live.Change{Owner: anna.Text, Entry: "one.example", Why: "by b"}))(t, fmt.Sprintf("%s: with an old tag", name), live.ErrChanged)
			testkit.Equal(t, fmt.Sprintf("%s: the engine is there", name), b.Status().Up, true)
			testkit.Value(b.set.Apply(live.Change{Owner: "ben@here.example", Entry: "two.example", Why: name}))(t)
			behind.on.Store(false)
			same(name)
		}
		testkit.Value(b.set.ApplyIf(anna, tagOf(b), live.Change{Owner: anna.Text, Entry: "one.example", Remove: true}))(t)
		same("after it")
		// An entry that has ended counts no more, whether it was swept or not.
		ends := own("ends.example", lists.Block)
		ends.Expires = a.set.Now().Add(2 * time.Second)
		a.apply(t, ends)
		same("an entry that ends")
		testkit.Eventually(t, "it ends", func() bool {
			_, err := a.set.ApplyIf(anna, tagOf(a), live.Change{Owner: anna.Text, Entry: "four.example", Why: time.Now().String()})
			all, _ := a.set.Of(anna)
			return err == nil && len(all) == 1 && a.set.Now().After(ends.Expires)
		})
	})
}

// Of many changes at once by one tag from three machines exactly one is made.
func TestOfManyWithOneTagOneWins(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		nodes, anna := fleet(t, e, 3, nil), ownerOf(t, "anna@here.example")
		for round := range 5 {
			var tags [3]string
			testkit.Eventually(t, "all have the same", func() bool {
				for i, n := range nodes {
					_, tags[i] = n.set.Of(anna)
				}
				return tags[0] == tags[1] && tags[1] == tags[2]
			})
			var made atomic.Int32
			var all sync.WaitGroup
			for i, n := range nodes {
				for range 2 {
					all.Go(func() {
						_, err := n.set.ApplyIf(anna, tags[0], live.Change{Owner: anna.Text, Entry: "x.example", Why: time.Now().String() + n.folder})
						if err == nil {
							made.Add(1)
						} else if !errors.Is(err, live.ErrChanged) {
							t.Errorf("round %d, machine %d: %v", round, i, err)
						}
					})
				}
			}
			all.Wait()
			testkit.Equal(t, fmt.Sprintf("round %d: changes that were made", round), made.Load(), 1)
		}
	})
}

// BenchmarkActsElsewhere measures how long a change takes until it is acknowledged, and until it acts on another machine.
func BenchmarkActsElsewhere(b *testing.B) {
	for _, kind := range []string{"postgres", "redis"} {
		b.Run(kind, func(b *testing.B) {
			e := engineOf(b, kind)
			nodes := fleet(b, e, 3, nil)
			var acknowledged, acted []time.Duration
			for i := 0; b.Loop(); i++ {
				entry := fmt.Sprintf("x%d@bench.example", i)
				begun := time.Now()
				if _, err := nodes[0].set.Apply(block(entry, "")); err != nil {
					b.Fatal(err)
				}
				acknowledged = append(acknowledged, time.Since(begun))
				for row := (live.Row{Entry: entry, Scope: "exact", Action: "block"}); nodes[1].set.Get(&row) == nil; {
					runtime.Gosched()
				}
				acted = append(acted, time.Since(begun))
			}
			for name, all := range map[string][]time.Duration{"ack": acknowledged, "acts": acted} {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-p50-ms")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, name+"-p99-ms")
			}
		})
	}
}

func engineOf(b testing.TB, kind string) engine {
	b.Helper()
	if kind == "redis" {
		return ofRedis(b)
	}
	return ofPostgres(b)
}
