package shared_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
)

// While the engine is away nothing is changed, and what was known acts on.
func TestRefusesWhileTheEngineIsAway(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		link := testkit.NewProxy(t, e.address)
		a := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, e.open(t, link), nil)
		testkit.Eventually(t, "the engine answers", func() bool { return a.Status().Up })
		a.apply(t, block("one.example", "1"))
		link.Set(unreachable)
		for range 2 {
			if _, err := a.set.Apply(block("two.example", "2")); !errors.Is(err, live.ErrAway) {
				t.Errorf("while it is away: %v", err)
			}
		}
		testkit.Eventually(t, "a problem", func() bool {
			return len(a.Problems()) == 1 && strings.Contains(a.Problems()[0], "does not answer since")
		})
		if a.has("one.example") == "" || a.has("two.example") != "" {
			t.Error("what acts has changed")
		}
		link.Set(whole)
		testkit.Eventually(t, "no problem", func() bool { return len(a.Problems()) == 0 })
		a.apply(t, block("two.example", "2"))
	})
}

// With on_outage = "local" a change acts on its machine, is marked, and is for all when the engine is back, unless another machine
// has changed the entry.
func TestChangesAloneAreOfferedLater(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		link := testkit.NewProxy(t, e.address)
		alone := func(o *shared.Options) { o.Alone = true }
		a := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, e.open(t, link), alone)
		b := fleet(t, e, 1, nil)[0]
		testkit.Eventually(t, "the engine answers", func() bool { return a.Status().Up })
		a.apply(t, block("known.example", "old"), block("both.example", "old"), block("gone.example", "old"))
		b.eventually(t, "gone.example", "block old")
		link.Set(unreachable)
		if o := a.apply(t, block("new.example", "alone")); o[0].Entry.Rev != 0 {
			t.Errorf("made alone, and has the revision %d", o[0].Entry.Rev)
		}
		a.apply(t, block("known.example", "alone"), block("both.example", "alone"), live.Change{Entry: "gone.example", Remove: true})
		b.apply(t, block("both.example", "elsewhere"))
		if a.has("new.example") != "block alone" || a.has("gone.example") != "" || a.has("both.example") != "block alone" || b.has("new.example") != "" {
			t.Error("what was changed alone does not act, or acts elsewhere")
		}
		// A restart in between keeps them.
		a.stop()
		a = begin(t, a.folder, e.kind, e.open(t, link), alone)
		if s := a.Status(); s.Pending != 4 {
			t.Errorf("after a restart %d changes wait", s.Pending)
		}
		link.Set(whole)
		for _, n := range []*node{a, b} {
			n.eventually(t, "new.example", "block alone")
			n.eventually(t, "known.example", "block alone")
			n.eventually(t, "both.example", "block elsewhere")
			n.eventually(t, "gone.example", "")
		}
		testkit.Eventually(t, "nothing waits", func() bool { return a.Status().Pending == 0 })
		if got := a.same(content(t, e)); got != "" {
			t.Error(got)
		}
		if !strings.Contains(a.log.String(), "has changed elsewhere") {
			t.Errorf("the log does not tell of the change that was given up:\n%s", a.log)
		}
	})
}

func client(t *testing.T, address string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: address, Protocol: 2})
	t.Cleanup(func() { c.Close() })
	return c
}

// What a Redis loses in a failover is told of, taken back everywhere, and never added again by itself.
func TestLossesAreToldOf(t *testing.T) {
	server := redisserver.Start(t)
	e := atRedis(server.Address)
	nodes := fleet(t, e, 2, nil)
	a, b := nodes[0], nodes[1]
	a.apply(t, block("keeps.example", "k"), block("removed.example", "r"), block("changed.example", "before"))
	if err := client(t, server.Address).Save(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	a.apply(t, block("lost.example", "l"), block("changed.example", "after"), live.Change{Entry: "removed.example", Remove: true})
	b.eventually(t, "removed.example", "")
	server.Kill()
	redisserver.StartAt(t, server.Address, "--dir", server.Dir)
	for _, n := range nodes {
		testkit.Eventually(t, "the loss", func() bool { return n.Status().Lost == 3 })
		n.eventually(t, "lost.example", "")
		n.eventually(t, "changed.example", "block before")
		n.eventually(t, "removed.example", "block r")
		testkit.Eventually(t, "a problem", func() bool { return strings.Contains(strings.Join(n.Problems(), "\n"), "has lost 3 changes") })
		if got := n.same(content(t, e)); got != "" {
			t.Error(got)
		}
	}
	made, err := a.Offer(t.Context(), "anna")
	if err != nil || made != 3 {
		t.Errorf("Offer() = %d, %v", made, err)
	}
	for _, n := range nodes {
		n.eventually(t, "lost.example", "block l")
		n.eventually(t, "changed.example", "block after")
		n.eventually(t, "removed.example", "")
		testkit.Eventually(t, "no loss", func() bool { return n.Status().Lost == 0 })
	}
}

// A store that was emptied has another epoch. Its nodes do not fill it.
func TestAnEmptyStoreStaysEmpty(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a := fleet(t, e, 1, nil)[0]
		a.apply(t, block("one.example", "1"), block("two.example", "2"))
		e.empty(t)
		testkit.Eventually(t, "the loss", func() bool { return a.Status().Lost == 2 })
		a.eventually(t, "one.example", "")
		if rows := content(t, e); len(rows) != 0 {
			t.Errorf("the engine has %d rows", len(rows))
		}
		if n, err := a.Dismiss(); n != 2 || err != nil {
			t.Errorf("Dismiss() = %d, %v", n, err)
		}
		a.apply(t, block("three.example", "3"))
	})
}

// A table that is emptied under a daemon, and a row whose times no number stands for, stop nobody.
func TestATableInOtherHands(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		if e.kind != "postgres" {
			t.Skip("a table")
		}
		a := fleet(t, e, 1, nil)[0]
		a.apply(t, block("one.example", "1"))
		e.exec(t, "truncate blockd_live")
		testkit.Eventually(t, "the loss", func() bool { return a.Status().Lost == 1 })
		a.apply(t, block("two.example", "2"))
		e.exec(t, "update blockd_live set expires = 'infinity', created = '-infinity', rev = nextval('blockd_live_rev') where entry = 'two.example'")
		a.apply(t, block("three.example", "3"))
		a.eventually(t, "two.example", "block 2")
	})
}

// What is refused for its revision while the engine is away is not offered when it is back.
func TestRefusedAloneIsNotOffered(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		link := testkit.NewProxy(t, e.address)
		a := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, e.open(t, link), func(o *shared.Options) { o.Alone = true })
		testkit.Eventually(t, "the engine answers", func() bool { return a.Status().Up })
		o := a.apply(t, block("known.example", "old"))
		link.Set(unreachable)
		a.apply(t, block("other.example", "alone"))
		stale := o[0].Rev + 1000
		c := block("known.example", "stale")
		c.IfRev = &stale
		if _, err := a.set.Apply(c); !errors.As(err, new(*live.RevisionError)) {
			t.Errorf("a change of another revision: %v", err)
		}
		if s := a.Status(); s.Pending != 1 {
			t.Errorf("%d changes wait, want one", s.Pending)
		}
	})
}

// A machine that was away for eight days does not know of removals whose rows are gone. It reads everything, and brings back nothing.
func TestEightDaysAway(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		nodes := fleet(t, e, 2, nil)
		a, b := nodes[0], nodes[1]
		a.apply(t, block("one.example", "1"), block("two.example", "2"))
		b.eventually(t, "two.example", "block 2")
		b.stop()
		a.apply(t, live.Change{Entry: "one.example", Remove: true})
		e.age(t)
		a.apply(t, block("three.example", "3"))
		aged(t, b.folder)
		b = begin(t, b.folder, e.kind, e.open(t, nil), nil)
		b.eventually(t, "three.example", "block 3")
		b.eventually(t, "one.example", "")
		if s := b.Status(); s.Lost != 0 {
			t.Errorf("%d changes are said to be lost: %+v", s.Lost, b.told(t))
		}
		if rows := content(t, e); len(rows) != 2 || b.same(rows) != "" {
			t.Errorf("the engine has %d rows; %s", len(rows), b.same(rows))
		}
	})
}

// aged makes the engine's last answer eight days old, in the files of a machine that is stopped.
func aged(t *testing.T, folder string) {
	t.Helper()
	path := filepath.Join(folder, "shared.json")
	var kept map[string]any
	if err := json.Unmarshal(testkit.Read(t, path), &kept); err != nil {
		t.Fatal(err)
	}
	kept["seen"] = time.Now().Add(-8 * 24 * time.Hour)
	text, _ := json.Marshal(kept)
	testkit.Write(t, path, text)
}

// Entries end by the clock of the engine, also on a machine whose clock is an hour off, which says so.
func TestAClockThatIsOff(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		early := func(o *shared.Options) { o.Clock = func() time.Time { return time.Now().Add(-time.Hour) } }
		a := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, e.open(t, nil), early)
		testkit.Eventually(t, "the offset", func() bool { return a.Status().Offset.Round(time.Minute) == time.Hour })
		if p := strings.Join(a.Problems(), ""); !strings.Contains(p, "off by 1h0m0s") {
			t.Errorf("Problems() = %q", p)
		}
		// For this machine it is an hour earlier than for the engine. The test's clock is right, so the offset takes an entry past its end.
		in := func(d time.Duration) live.Change {
			c := block("bad.example", "for a while")
			c.Expires = a.set.Now().Add(d)
			return c
		}
		a.apply(t, in(2*time.Hour))
		if a.has("bad.example") == "" {
			t.Error("an entry of two hours has ended")
		}
		if got := time.Until(a.set.Now()).Round(time.Minute); got != time.Hour {
			t.Errorf("Now() is %s before this machine's clock", got)
		}
	})
}

// What has ended is removed in the engine, once, and so on all machines.
func TestWhatEndsIsSwept(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		nodes := fleet(t, e, 2, nil)
		c := block("bad.example", "for a moment")
		c.Expires = nodes[0].set.Now().Add(2 * time.Second)
		nodes[0].apply(t, c, block("good.example", "for ever"))
		testkit.Eventually(t, "it ends", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			sweeper := e.open(t, nil)
			defer sweeper.Close()
			if err := sweeper.Sweep(ctx); err != nil {
				t.Fatal(err)
			}
			s, err := sweeper.State(ctx)
			return err == nil && s.Count == 1
		})
		for _, n := range nodes {
			testkit.Eventually(t, "it goes", func() bool { return n.set.Sum().Count == 1 })
			if got := n.same(content(t, e)); got != "" {
				t.Error(got)
			}
		}
	})
}
