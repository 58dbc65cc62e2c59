package shared_test

import (
	"errors"
	"testing"

	"blockd/index/live"
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
		for _, n := range nodes {
			n.eventually(t, "spam@bad.example", "block phish")
		}
		o = b.apply(t, live.Change{Entry: "spam@bad.example", Action: lists.Allow, Why: "a mistake", Author: "ben"})
		if o[0].Was == nil || o[0].Was.Why != "phish" {
			t.Errorf("replaced: %+v", o[0])
		}
		for _, n := range nodes {
			n.eventually(t, "spam@bad.example", "allow a mistake")
		}
		if o := b.apply(t, live.Change{Entry: "spam@bad.example", Action: lists.Allow, Why: "a mistake", Author: "ben"}); o[0].Changed() {
			t.Errorf("the same again: %+v", o[0])
		}
		if o := c.apply(t, live.Change{Entry: "spam@bad.example", Remove: true}); o[0].Entry != nil || o[0].Was == nil {
			t.Errorf("removed: %+v", o[0])
		}
		for _, n := range nodes {
			n.eventually(t, "spam@bad.example", "")
		}
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
		if _, err := b.set.Apply(live.Change{Owner: anna.Text, Entry: "d.example"}); !errors.Is(err, live.ErrOwnerFull) {
			t.Errorf("a fourth entry on B: %v", err)
		}
		if _, err := a.set.Apply(live.Change{Owner: anna.Text, Entry: "d.example"}); !errors.Is(err, live.ErrOwnerFull) {
			t.Errorf("a fourth entry on A: %v", err)
		}
		a.apply(t, live.Change{Owner: anna.Text, Entry: "b.example", Remove: true}, live.Change{Owner: anna.Text, Entry: "d.example"})
		want, tag := a.set.Of(anna)
		if len(want) != 3 {
			t.Fatalf("A has %d entries of the owner", len(want))
		}
		b.eventually(t, "bad.example", "block everybody's")
		testkit.Eventually(t, "the same tag", func() bool {
			_, same := b.set.Of(anna)
			return same == tag
		})
		if _, err := b.set.ApplyIf(anna, tag, live.Change{Owner: anna.Text, Entry: "c.example", Remove: true}); err != nil {
			t.Errorf("by the tag of another machine: %v", err)
		}
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
		if b.has("one.example") != "block 1" || b.has("two.example") != "block 2" {
			t.Errorf("without the engine: %q, %q", b.has("one.example"), b.has("two.example"))
		}
		if rev := b.set.Cursor().Revision; rev == 0 {
			t.Error("the journal knows of no revision")
		}
		link.Set(whole)
		b.eventually(t, "three.example", "block 3")
		b.eventually(t, "one.example", "")
		if err := b.set.Tidy(); err != nil {
			t.Fatal(err)
		}
		if got := b.same(content(t, e)); got != "" {
			t.Error(got)
		}
	})
}
