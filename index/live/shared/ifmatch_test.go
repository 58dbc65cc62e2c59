package shared_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/internal/testkit"
	"blockd/lists"
)

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
			if _, err := a.set.ApplyIf(anna, tagOf(a), changes...); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if tagOf(a) == old {
				t.Fatalf("%s: the tag is as before", name)
			}
			if _, err := b.set.ApplyIf(anna, tagOf(b), live.Change{Owner: anna.Text, Entry: "one.example", Why: "by b"}); !errors.Is(err, live.ErrChanged) {
				t.Errorf("%s: with an old tag: %v", name, err)
			}
			if !b.Status().Up {
				t.Errorf("%s: the engine is said to be away", name)
			}
			if _, err := b.set.Apply(live.Change{Owner: "ben@here.example", Entry: "two.example", Why: name}); err != nil {
				t.Errorf("%s: another owner: %v", name, err)
			}
			behind.on.Store(false)
			same(name)
		}
		if _, err := b.set.ApplyIf(anna, tagOf(b), live.Change{Owner: anna.Text, Entry: "one.example", Remove: true}); err != nil {
			t.Errorf("with a new tag: %v", err)
		}
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
			if n := made.Load(); n != 1 {
				t.Errorf("round %d: %d were made", round, n)
			}
		}
	})
}
