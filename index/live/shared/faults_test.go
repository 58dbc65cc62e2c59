package shared_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/index/live/shared/relay"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/internal/testkit/toxiproxy"
)

// While the engine is away nothing is changed, and what was known acts on.
func TestRefusesWhileTheEngineIsAway(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a, link := linked(t, e, nil)
		a.apply(t, block("one.example", "1"))
		link.Set(unreachable)
		for range 2 {
			testkit.Fails(a.set.Apply(block("two.example", "2")))(t, "while it is away", live.ErrAway)
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
		a.follows(t)
		a.apply(t, block("known.example", "old"), block("both.example", "old"), block("gone.example", "old"))
		b.eventually(t, "gone.example", "block old")
		link.Set(unreachable)
		testkit.Equal(t, "revision of what was made alone", a.apply(t, block("new.example", "alone"))[0].Entry.Rev, 0)
		a.apply(t, block("known.example", "alone"), block("both.example", "alone"), live.Change{Entry: "gone.example", Remove: true})
		b.apply(t, block("both.example", "elsewhere"))
		if a.has("new.example") != "block alone" || a.has("gone.example") != "" || a.has("both.example") != "block alone" || b.has("new.example") != "" {
			t.Error("what was changed alone does not act, or acts elsewhere")
		}
		// A restart in between keeps them.
		a.stop()
		a = begin(t, a.folder, e.kind, e.open(t, link), alone)
		testkit.Equal(t, "changes that wait after a restart", a.Status().Pending, 4)
		link.Set(whole)
		everywhere(t, []*node{a, b}, "new.example", "block alone")
		everywhere(t, []*node{a, b}, "known.example", "block alone")
		everywhere(t, []*node{a, b}, "both.example", "block elsewhere")
		everywhere(t, []*node{a, b}, "gone.example", "")
		testkit.Eventually(t, "nothing waits", func() bool { return a.Status().Pending == 0 })
		testkit.Equal(t, "what differs", a.same(content(t, e)), "")
		testkit.Has(t, a.log.String(), "has changed elsewhere")
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
	testkit.Must(t, client(t, server.Address).Save(context.Background()).Err())
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
		testkit.Equal(t, "what differs", n.same(content(t, e)), "")
	}
	made := testkit.Value(a.Offer(t.Context(), "anna"))(t)
	testkit.Equal(t, "Offer", made, 3)
	for _, n := range nodes {
		n.eventually(t, "lost.example", "block l")
		n.eventually(t, "changed.example", "block after")
		n.eventually(t, "removed.example", "")
		testkit.Eventually(t, "no loss", func() bool { return n.Status().Lost == 0 })
	}
}

// A table that is emptied under a daemon, and a row whose times no number stands for, stop nobody.
func TestATableInOtherHands(t *testing.T) {
	e := ofPostgres(t)
	a := fleet(t, e, 1, nil)[0]
	a.apply(t, block("one.example", "1"))
	e.exec(t, "truncate blockd_live")
	testkit.Eventually(t, "the loss", func() bool { return a.Status().Lost == 1 })
	a.apply(t, block("two.example", "2"))
	e.exec(t, "update blockd_live set expires = 'infinity', created = '-infinity', rev = nextval('blockd_live_rev') where entry = 'two.example'")
	a.apply(t, block("three.example", "3"))
	a.eventually(t, "two.example", "block 2")
}

// What is refused for its revision while the engine is away is not offered when it is back.
func TestRefusedAloneIsNotOffered(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a, link := linked(t, e, func(o *shared.Options) { o.Alone = true })
		o := a.apply(t, block("known.example", "old"))
		link.Set(unreachable)
		a.apply(t, block("other.example", "alone"))
		stale := o[0].Rev + 1000
		c := block("known.example", "stale")
		c.IfRev = &stale
		if _, err := a.set.Apply(c); !errors.As(err, new(*live.RevisionError)) {
			t.Errorf("a change of another revision: %v", err)
		}
		testkit.Equal(t, "changes that wait", a.Status().Pending, 1)
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
		testkit.Equal(t, "lost changes", b.Status().Lost, 0)
		rows := content(t, e)
		testkit.Got(len(rows), b.same(rows))(t, "rows of the engine, and how they differ", 2, "")
	})
}

// aged makes the engine's last answer eight days old, in the files of a machine that is stopped.
func aged(t *testing.T, folder string) {
	t.Helper()
	path := filepath.Join(folder, "shared.json")
	var kept map[string]any
	testkit.Must(t, json.Unmarshal(testkit.Read(t, path), &kept))
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
		testkit.Has(t, strings.Join(a.Problems(), ""), "off by 1h0m0s")
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
		testkit.Equal(t, "Now() before this machine's clock", time.Until(a.set.Now()).Round(time.Minute), time.Hour)
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
			testkit.Must(t, sweeper.Sweep(ctx))
			s, err := sweeper.State(ctx)
			return err == nil && s.Count == 1
		})
		for _, n := range nodes {
			testkit.Eventually(t, "it goes", func() bool { return n.set.Sum().Count == 1 })
			testkit.Equal(t, "what differs", n.same(content(t, e)), "")
		}
	})
}

// spoiled are ways in which a link fails while its connections stay open, or end in the midst of something.
var spoiled = map[string][]toxiproxy.Toxic{
	"slow":                       {{Type: "latency", Stream: "upstream", Attributes: map[string]int{"latency": 200, "jitter": 100}}, {Type: "latency", Stream: "downstream", Attributes: map[string]int{"latency": 200, "jitter": 100}}},
	"narrow":                     {{Type: "bandwidth", Stream: "downstream", Attributes: map[string]int{"rate": 1}}}, // KB a second
	"in pieces":                  {{Type: "slicer", Stream: "downstream", Attributes: map[string]int{"average_size": 5, "size_variation": 4, "delay": 100}}},
	"answers get lost":           {{Type: "timeout", Stream: "downstream", Attributes: map[string]int{"timeout": 0}}}, // changes are made, and nobody hears of it
	"questions get lost":         {{Type: "timeout", Stream: "upstream", Attributes: map[string]int{"timeout": 0}}},
	"hangs, then ends":           {{Type: "timeout", Stream: "downstream", Attributes: map[string]int{"timeout": 700}}},
	"ends slowly":                {{Type: "slow_close", Stream: "downstream", Attributes: map[string]int{"delay": 2000}}, {Type: "limit_data", Stream: "downstream", Attributes: map[string]int{"bytes": 300}}},
	"ends in an answer":          {{Type: "limit_data", Stream: "downstream", Attributes: map[string]int{"bytes": 120}}},
	"ends in a question":         {{Type: "limit_data", Stream: "upstream", Attributes: map[string]int{"bytes": 400}}},
	"is reset after some moment": {{Type: "reset_peer", Stream: "downstream", Attributes: map[string]int{"timeout": 150}}},
}

// through is a database by way of a link.
func (e engine) through(t *testing.T, l *toxiproxy.Link) shared.Engine {
	t.Helper()
	dsn := "redis://" + l.Address
	if e.kind == "postgres" {
		dsn = fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", l.Address, url.PathEscape(e.database))
	}
	return testkit.Value(openEngine(e.kind, dsn))(t)
}

// However a link fails, a change is answered in some seconds, what was known acts, and once the link is well again all is as the database has it: with
// each change that was acknowledged, and no other loss told of.
func TestSpoiledLinks(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		proxy := toxiproxy.Start(t)
		for name, toxics := range spoiled {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // they wait for most of the time
				e := e
				if e.kind == "postgres" {
					e = ofPostgres(t)
				} else {
					e = ofRedis(t)
				}
				link := proxy.Link(t, strings.NewReplacer(" ", "-", ",", "").Replace(name), e.address)
				a := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, e.through(t, link), func(o *shared.Options) { o.SumEvery = 2 * time.Second })
				b := fleet(t, e, 1, nil)[0]
				a.follows(t)
				a.apply(t, block("known.example", "before"))
				mend := link.Spoil(t, toxics...)
				made := []string{"known.example"}
				for i := range 4 {
					entry := fmt.Sprintf("x%d.example", i)
					begun := time.Now()
					if _, err := a.set.Apply(block(entry, "while it is "+name)); err == nil {
						made = append(made, entry)
					}
					testkit.AtMost(t, "time until a change is answered", time.Since(begun), 20*time.Second)
					if a.has("known.example") == "" {
						t.Error("what was known does not act")
					}
					b.apply(t, block(fmt.Sprintf("y%d.example", i), "elsewhere"))
				}
				mend()
				testkit.Within(t, "all is as the database has it", 2*time.Minute, func() bool {
					rows := content(t, e)
					return a.Status().Up && a.same(rows) == "" && b.same(rows) == ""
				})
				for _, entry := range made {
					if a.has(entry) == "" || b.has(entry) == "" {
						t.Errorf("%s was acknowledged, and is not there", entry)
					}
				}
				testkit.Equal(t, "lost", a.Status().Lost+b.Status().Lost, 0)
				t.Logf("%d of 4 changes were acknowledged", len(made)-1)
			})
		}
	})
}

// A relay that hangs with its connections open holds a change back until the next question finds that out, and then the database is asked.
func TestARelayThatHangs(t *testing.T) {
	e := ofRedis(t)
	first := fleet(t, e, 1, nil)[0]
	door := newDoor(t)
	door.node.Store(first)
	link := toxiproxy.Start(t).Link(t, "relay", strings.TrimPrefix(door.URL, "http://"))
	b := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, relay.New(e.open(t, nil), []string{"http://" + link.Address}, func() (string, error) { return "the-token-of-a-test", nil }, nil), func(o *shared.Options) { o.Poll = 2 * time.Second })
	first.apply(t, block("old.example", "before"))
	b.eventually(t, "old.example", "block before")
	mend := link.Spoil(t, toxiproxy.Toxic{Type: "timeout", Stream: "downstream", Attributes: map[string]int{"timeout": 0}})
	begun := time.Now()
	first.apply(t, block("new.example", "while it hangs"), live.Change{Entry: "old.example", Remove: true})
	b.eventually(t, "new.example", "block while it hangs")
	b.eventually(t, "old.example", "")
	t.Logf("known after %s", time.Since(begun).Round(time.Millisecond))
	mend()
	asked := door.asked.Load()
	first.apply(t, block("third.example", "again"))
	b.eventually(t, "third.example", "block again")
	testkit.Eventually(t, "the relay is asked again", func() bool { return door.asked.Load() > asked })
}
