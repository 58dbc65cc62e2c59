package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/internal/minisign"
	"blockd/internal/testkit"
	"blockd/lists"
)

// After any changes, and for nodes that look at any of them, a node has what the publisher had.
func TestNodesHaveWhatWasPublished(t *testing.T) {
	c := newChannel(t)
	c.list("friends", "allow")
	rng := rand.New(rand.NewPCG(1, 2))
	every, seldom := c.node(c.options()), c.node(c.options())
	c.add("spam", addresses(0, 12_000)...)
	for round := range 15 {
		for range 20 {
			n := rng.IntN(15_000)
			c.add("spam", addresses(n, n+rng.IntN(5))...)
			c.remove("spam", addresses(n+10, n+10+rng.IntN(5))...)
		}
		c.add("friends", addresses(round, round+1)...)
		told := c.publish()
		testkit.MustEqual(t, fmt.Sprintf("sequence in round %d", round), told.Sequence, int64(round+1))
		once(t, every)
		c.agrees(every)
		if round%7 == 0 {
			once(t, seldom)
			c.agrees(seldom)
		}
	}
	if whole := every.counters.fetch[kindWhole] + seldom.counters.fetch[kindWhole]; whole > 3*every.counters.fetch[kindWhole] {
		t.Errorf("%d octets of whole objects: the node that looks seldom fetches them again and again", whole)
	}
	if every.counters.fetch[kindDelta] == 0 || every.counters.fetch[kindDelta] > every.counters.fetch[kindWhole] {
		t.Errorf("%d octets of deltas, %d of whole objects", every.counters.fetch[kindDelta], every.counters.fetch[kindWhole])
	}
}

func TestARestartHasWhatWasThere(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 100)...)
	c.publish()
	o := c.options()
	n := c.node(o)
	once(t, n)
	n.Close()
	again := c.node(o)
	s := again.Status()
	testkit.Equal(t, "sequence and seen after a restart", [...]int64{s.Sequence, s.Seen}, [...]int64{1, 1})
	c.agrees(again)
	testkit.Value(os.Stat(filepath.Join(o.Folder, lockName)))(t)
	other := New(o, nil)
	testkit.IsError(t, "a second one", other.Open(), ErrLocked)
}

// The publisher goes on with its numbers and its deltas when its folder is lost.
func TestAPublisherThatLostItsFolder(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 12_000)...)
	c.publish()
	n := c.node(c.options())
	once(t, n)
	testkit.Must(t, os.RemoveAll(c.folder))
	c.add("spam", "one@more.example")
	told := c.publish()
	testkit.Equal(t, "sequence, added, removed", [...]int64{told.Sequence, told.Added, told.Removed}, [...]int64{2, 1, 0})
	before := n.counters.fetch[kindWhole]
	once(t, n)
	c.agrees(n)
	testkit.Equal(t, "a whole shard was fetched for one entry", n.counters.fetch[kindWhole], before)
}

func TestWhatEasesIsForAllAtOnce(t *testing.T) {
	c := newChannel(t)
	c.list("friends", "allow")
	c.stages = []PlannedStage{{1, 15 * time.Minute}, {20, 30 * time.Minute}}
	c.add("spam", addresses(0, 1000)...)
	steps := []struct {
		what   string
		change func()
		stages int
	}{
		{"the first one", func() {}, 3},
		{"nothing", func() {}, 1},
		{"a block goes", func() { c.remove("spam", addresses(7, 8)...) }, 1},
		{"a block comes", func() { c.add("spam", "x@new.example") }, 3},
		{"an exception comes", func() { c.add("friends", "y@new.example") }, 1},
		{"an exception goes", func() { c.remove("friends", "y@new.example") }, 3},
		{"a list becomes a shadow", func() { c.lists[0].Mode = "shadow" }, 3},
		{"a list that blocks goes", func() { c.lists = c.lists[1:] }, 1},
		{"a list that blocks comes", func() { c.list("more", "block") }, 3},
	}
	for _, s := range steps {
		s.change()
		testkit.Equal(t, fmt.Sprintf("stages: %s", s.what), len(c.publish().Stages), s.stages)
	}
}

func TestHaltAndPin(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 100)...)
	c.publish()
	old, stays := c.node(c.options()), c.node(c.options())
	once(t, old)
	once(t, stays)
	c.add("spam", "wrong@good.example")
	c.publish()
	once(t, old)
	p := c.publisher()
	at, err := p.Halt(t.Context(), time.Now().Add(time.Hour))
	p.Close()
	if err != nil || at != 1 {
		t.Fatalf("Halt: %d, %v", at, err)
	}
	testkit.Must(t, os.Remove(c.store.path(pinName("prod")))) // as if the store was away
	p = c.publisher()
	testkit.Should(t, p.Assert(t.Context()))
	p.Close()
	once(t, old)
	once(t, stays)
	for _, n := range []*Node{old, stays} {
		s := n.Status()
		testkit.Got(s.Sequence, s.ByChannel)(t, "halted", 1, true)
	}
	halted := map[string][]byte{}
	for _, name := range []string{pinName("prod"), pinName("prod") + minisign.Suffix} {
		text := testkit.Value(os.ReadFile(c.store.path(name)))(t)
		halted[name] = text
	}
	c.remove("spam", "wrong@good.example")
	c.add("spam", "right@bulk.example")
	told := c.publish()
	testkit.Got(told.Lifted, told.Sequence)(t, "lifted, and sequence", true, 3)
	once(t, old) // a pin that is gone for one look may come back
	once(t, old)
	c.agrees(old)
	for name, text := range halted { // somebody puts the pin back
		testkit.Must(t, os.WriteFile(c.store.path(name), text, 0o644))
	}
	if err := old.Once(t.Context()); reasonOf(err) != Replayed || old.Status().Sequence != 3 {
		t.Errorf("a pin that was taken back: %v, %+v", err, old.Status())
	}
}

func TestAnOperatorsPinHolds(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 100)...)
	c.publish()
	n := c.node(c.options())
	once(t, n)
	c.add("spam", "more@bulk.example")
	c.publish()
	once(t, n)
	testkit.Must(t, SetPin(n.Folder, 1))
	once(t, n)
	if s := n.Status(); s.Sequence != 1 || s.Pinned != 1 || s.ByChannel {
		t.Errorf("pinned: %+v", s)
	}
	testkit.Must(t, SetPin(n.Folder, 0))
	once(t, n)
	s := n.Status()
	testkit.Equal(t, "not pinned any more", [...]int64{s.Sequence, s.Pinned}, [...]int64{2, 0})
	c.agrees(n)
}

func TestANodeAwayForLong(t *testing.T) {
	c := newChannel(t)
	c.keep = 5
	c.add("spam", addresses(0, 12_000)...)
	c.publish()
	n := c.node(c.options())
	once(t, n)
	for i := range 12 {
		c.add("spam", fmt.Sprintf("x%d@more.example", i))
		c.publish()
	}
	once(t, n)
	c.agrees(n)
	manifests := testkit.Value(filepath.Glob(c.store.path("manifests/*.json")))(t)
	testkit.Equal(t, "the store keeps manifests", len(manifests), c.keep)
	fresh := c.node(c.options())
	once(t, fresh)
	c.agrees(fresh)
}

func ExampleTurn() {
	fmt.Printf("%.4f\n", Turn("prod", 4711, "mx17.eu"))
	fmt.Printf("%.4f\n", Turn("prod", 4712, "mx17.eu"))
	// Output:
	// 22.1446
	// 40.8005
}

// What a person has published again stays, although the lists of the publisher still have what was taken back, until a person publishes; and it
// is made anew before it ends.
func TestWhatWasPublishedAgainStays(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 100)...)
	c.publish()
	c.add("spam", "good@partner.example")
	c.publish()
	p := c.publisher()
	defer p.Close()
	testkit.Value(p.Halt(t.Context(), time.Now().Add(time.Hour)))(t)
	if told, err := p.Again(t.Context(), 1, true); err != nil || told.Sequence != 3 || !told.Lifted {
		t.Fatalf("%+v, %v", told, err)
	}
	for range 2 {
		if told, err := p.PublishChanges(t.Context(), c.content()); !errors.Is(err, ErrStands) || told != nil {
			t.Fatalf("what was taken back is published by itself: %+v, %v", told, err)
		}
	}
	c.add("spam", addresses(100, 110)...) // neither with others
	if told, err := p.PublishChanges(t.Context(), c.content()); !errors.Is(err, ErrStands) {
		t.Fatalf("%+v, %v", told, err)
	}
	p.aged = Life
	told, err := p.PublishChanges(t.Context(), c.content())
	testkit.MustGot(err, told.Sequence)(t, "it ends, and is not made anew", nil, 4)
	p.aged = 0
	if _, err := p.PublishChanges(t.Context(), c.content()); !errors.Is(err, ErrStands) {
		t.Fatal(err)
	}
	c.remove("spam", "good@partner.example")
	if told, err = p.Publish(t.Context(), c.content(), false); err != nil || told.Sequence != 5 || told.Entries != 110 {
		t.Fatalf("%+v, %v", told, err)
	}
	c.add("spam", addresses(110, 120)...)
	told = testkit.Value(p.PublishChanges(t.Context(), c.content()))(t)
	testkit.MustEqual(t, "sequence", told.Sequence, 6)
}

// Those that can be published again are in the store.
func TestSequencesThatAreThere(t *testing.T) {
	c := newChannel(t)
	c.keep = 3
	for i := range 5 {
		c.add("spam", addresses(i, i+1)...)
		c.publish()
	}
	kept, err := Kept(c.folder, "prod")
	if err != nil || len(kept) != 3 || kept[0].Sequence != 5 || kept[2].Sequence != 3 || kept[2].entries() != 3 || kept[2].Created == 0 {
		t.Fatalf("%+v, %v", kept, err)
	}
	if kept, err = Kept(c.folder, "other"); err != nil || len(kept) != 0 {
		t.Fatalf("of another channel: %+v, %v", kept, err)
	}
	kept = testkit.Value(Kept(t.TempDir(), "prod"))(t)
	testkit.MustEqual(t, fmt.Sprintf("of no publisher: %+v", kept), len(kept), 0)
}

// Three hundred nodes take a sequence in stages, each when its turn says so; a halt brings all back.
func TestThreeHundredNodes(t *testing.T) {
	c := newChannel(t)
	c.add("spam", "a@bulk.example")
	c.publish()
	const count = 300
	nodes := make([]*Node, count)
	folder := t.TempDir()
	all := func(at time.Time) (have map[int64]int) {
		t.Helper()
		have = map[int64]int{}
		var mu sync.Mutex
		var group sync.WaitGroup
		for i, n := range nodes {
			group.Go(func() {
				testkit.Equal(t, fmt.Sprintf("node %d", i), n.At(t.Context(), at), nil)
				mu.Lock()
				have[n.Status().Sequence]++
				mu.Unlock()
			})
		}
		group.Wait()
		return have
	}
	for i := range nodes {
		o := c.options()
		o.Folder, o.Node, o.Canary = filepath.Join(folder, fmt.Sprint(i)), fmt.Sprintf("mx%d.example", i), i == 0
		nodes[i] = c.node(o)
	}
	if have := all(time.Now()); have[1] != count {
		t.Fatalf("the first sequence: %v", have)
	}
	c.stages = []PlannedStage{{1, 15 * time.Minute}, {20, 30 * time.Minute}}
	c.add("spam", "b@bulk.example")
	told := c.publish()
	for i, s := range told.Stages[:2] {
		want := 0
		for k := range nodes {
			if k == 0 || Turn("prod", 2, nodes[k].Node) < float64(s.Share) {
				want++
			}
		}
		if have := all(time.Unix(s.From, 0).Add(time.Minute)); have[2] != want || have[1] != count-want {
			t.Errorf("stage %d: %v, want %d", i+1, have, want)
		}
	}
	p := c.publisher()
	testkit.Value(p.Halt(t.Context(), time.Now().Add(2*time.Hour)))(t)
	p.Close()
	if have := all(time.Unix(told.Stages[2].From, 0).Add(time.Minute)); have[1] != count {
		t.Errorf("halted: %v", have)
	}
}

// gone is a store that gives nothing.
type gone struct{}

func (gone) Get(context.Context, string, int64) (io.ReadCloser, error) {
	return nil, errors.New("connection refused")
}
func (gone) String() string { return "nowhere" }

func TestARelayServesWhatItHas(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 12_000)...)
	c.publish()
	o := c.options()
	o.Serves = true
	relay := c.node(o)
	once(t, relay)
	server := httptest.NewServer(relay.Relay())
	defer server.Close()
	web := testkit.Value(NewWeb(server.URL, "test"))(t)
	o = c.options()
	o.From, o.Relays = gone{}, []Store{web}
	behind := c.node(o)
	once(t, behind)
	c.agrees(behind)

	c.add("spam", "one@more.example")
	c.publish()
	once(t, relay)
	once(t, behind)
	c.agrees(behind)
	testkit.AtLeast(t, "deltas that came over the relay", behind.counters.fetch[kindDelta], 1)
	fresh := c.options() // wants whole objects, of which the relay has had deltas alone
	fresh.From, fresh.Relays = gone{}, []Store{web}
	late := c.node(fresh)
	once(t, late)
	c.agrees(late)
	for _, name := range []string{"state", "../state", "prod/../state", "files/x", "manifests/1.json.json", "objects/1.zst", "current/manifest.json", "prod/state"} {
		if in, err := web.Get(t.Context(), name, 0); err == nil {
			in.Close()
			t.Errorf("the relay gives %s", name)
		}
	}
}

// TestMain puts the folders of tests into memory where it can: on a loaded disk, syncs are all that these tests would wait for.
func TestMain(m *testing.M) {
	if folder, err := os.MkdirTemp("/dev/shm", "blockd"); err == nil {
		os.Setenv("TMPDIR", folder)
		defer os.RemoveAll(folder)
	}
	m.Run()
}

// channel is a publisher with its store, and what it is to publish.
type channel struct {
	t      testing.TB
	key    minisign.SecretKey
	store  Folder
	folder string
	stages []PlannedStage
	keep   int
	lists  []List
	model  map[string]map[string]bool // by list: lines
}

func newChannel(t testing.TB) *channel {
	c := &channel{t: t, key: minisign.NewSecretKey(), store: Folder(filepath.Join(t.TempDir(), "store")), folder: filepath.Join(t.TempDir(), "publish"), keep: 48, model: map[string]map[string]bool{}}
	c.list("spam", "block")
	return c
}

func (c *channel) list(name, action string) {
	c.lists = append(c.lists, List{Name: name, Action: action, OnMatch: "refuse", Mode: "enforce"})
	c.model[name] = map[string]bool{}
}

// line is that of an address.
func line(address string, action lists.Action) string {
	it, err := lists.ParseEntry(address, lists.Settings{})
	if err != nil {
		panic(err)
	}
	it.Action = action
	text, ok := lists.AppendEntryLine(nil, &it)
	if !ok {
		panic(address)
	}
	return string(text)
}

func (c *channel) add(list string, addresses ...string) {
	for _, a := range addresses {
		action := lists.Block
		for _, l := range c.lists {
			if l.Name == list && l.Action == "allow" {
				action = lists.Allow
			}
		}
		c.model[list][line(a, action)] = true
	}
}

func (c *channel) remove(list string, addresses ...string) {
	for _, a := range addresses {
		delete(c.model[list], line(a, lists.Block))
		delete(c.model[list], line(a, lists.Allow))
	}
}

func (c *channel) content() Content {
	return Content{Lists: c.lists, Lines: linesOf(func(yield func(int, string)) {
		for i, l := range c.lists {
			for text := range c.model[l.Name] {
				yield(i, text)
			}
		}
	})}
}

// linesOf makes Content.Lines of all lines, of which there is one for each key.
func linesOf(all func(yield func(list int, line string))) func(context.Context, int, int, func(int, []byte) bool, func(int, []byte) error) error {
	return func(_ context.Context, part, parts int, want func(int, []byte) bool, use func(int, []byte) error) (err error) {
		all(func(list int, line string) {
			key, _, _ := strings.Cut(line, "\t")
			if err == nil && len(line)%parts == part && want(list, []byte(key)) {
				err = use(list, []byte(line))
			}
		})
		return err
	}
}

func (c *channel) publisher() *Publisher {
	c.t.Helper()
	p, err := OpenPublisher(PublisherOptions{Folder: c.folder, Channel: "prod", Key: c.key, To: c.store, Keep: c.keep, Stages: c.stages, Version: "test", Log: quiet()})
	testkit.Must(c.t, err)
	p.leastBase = 2 << 10 // so that small lists try it
	return p
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// publish publishes the model.
func (c *channel) publish() *Published {
	c.t.Helper()
	p := c.publisher()
	defer p.Close()
	return testkit.Value(p.Publish(c.t.Context(), c.content(), false))(c.t)
}

func (c *channel) options() Options {
	return Options{Folder: filepath.Join(c.t.TempDir(), "fleet"), Channel: "prod", Node: "mx1", Keys: []minisign.PublicKey{minisign.NewSecretKey().Public(), c.key.Public()}, From: c.store, Every: time.Minute, Log: quiet()}
}

// node opens a node, until the test ends.
func (c *channel) node(o Options) *Node {
	c.t.Helper()
	n := New(o, nil)
	testkit.Must(c.t, n.Open())
	c.t.Cleanup(func() { n.Close() })
	return n
}

// once looks, and wants no error.
func once(t testing.TB, n *Node) {
	t.Helper()
	testkit.Must(t, n.Once(t.Context()))
}

// served are the lines of a list in a node's folder, as a list reads them.
func served(t testing.TB, folder, list string) []string {
	t.Helper()
	files := testkit.Value(filepath.Glob(ListFiles(folder, list)))(t)
	var all []string
	for _, path := range files {
		text := testkit.Value(os.ReadFile(path))(t)
		body, ok := strings.CutPrefix(string(text), head)
		testkit.MustEqual(t, fmt.Sprintf("%s: a head", path), ok, true)
		for l := range strings.Lines(body) {
			all = append(all, l)
		}
	}
	slices.Sort(all)
	return all
}

// agrees compares what a node has with the model.
func (c *channel) agrees(n *Node) {
	c.t.Helper()
	for _, l := range c.lists {
		if got, want := served(c.t, n.Folder, l.Name), slices.Sorted(maps.Keys(c.model[l.Name])); !slices.Equal(got, want) {
			c.t.Fatalf("list %s: the node has %d lines, want %d", l.Name, len(got), len(want))
		}
	}
}

func addresses(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("user%d@host%d.bulk.example", i, i%97))
	}
	return all
}
