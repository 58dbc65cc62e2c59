package snapshot

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// whole publishes the model by a publisher that has published nothing before, and returns what that says.
func (c *channel) whole() *Manifest {
	c.t.Helper()
	other := *c
	other.folder, other.store = filepath.Join(c.t.TempDir(), "publish"), Folder(filepath.Join(c.t.TempDir(), "store"))
	p := other.publisher()
	defer p.Close()
	testkit.Value(p.Publish(c.t.Context(), other.content(), true))(c.t)
	return p.last
}

// asWhole compares the last sequence with what a first publication of the same lines has.
func (c *channel) asWhole() {
	c.t.Helper()
	text := testkit.Value(os.ReadFile(PublishedFile(c.folder)))(c.t)
	m := testkit.Value(ParseManifest(text))(c.t)
	want := c.whole()
	testkit.MustEqual(c.t, "lists", len(m.Lists), len(want.Lists))
	for k := range m.Lists {
		for i, s := range m.Lists[k].Shards {
			if w := want.Lists[k].Shards[i]; s.Plain != w.Plain || s.Octets != w.Octets || s.Entries != w.Entries {
				c.t.Fatalf("sequence %d, list %s, shard %d: %d octets with %d entries, want %d with %d", m.Sequence, m.Lists[k].Name, i, s.Octets, s.Entries, w.Octets, w.Entries)
			}
		}
	}
}

// What is published by the difference is what a first publication has, whatever changes: entries, their reasons and ends, lines that say
// the same in several ways, lists that come and go, shards that are lost or damaged. A node has it too.
func TestADifferenceIsAsGoodAsTheWhole(t *testing.T) {
	seeds := uint64(2)
	if testing.Short() || race.Enabled {
		seeds = 1
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newChannel(t)
		c.list("friends", "allow")
		c.add("spam", addresses(0, 20_000)...)
		n := c.node(c.options())
		for round := range 9 {
			for range 1 + rng.IntN(30) {
				at := rng.IntN(20_500)
				name := addresses(at, at+1)[0]
				lines := c.model["spam"]
				switch rng.IntN(5) {
				case 0:
					c.add("spam", name)
				case 1:
					c.remove("spam", name)
				case 2: // another reason; the lines without one stay, so that two say the same
					lines[fmt.Sprintf("%s\tb\tx\t\t\treason %d\n", name, rng.IntN(3))] = true
				case 3:
					lines[fmt.Sprintf("%s\tb\tx\t%d\t\t\n", name, 2_000_000_000+rng.IntN(3))] = true
				case 4:
					c.add("friends", name)
				}
			}
			switch rng.IntN(6) {
			case 0:
				c.list(fmt.Sprintf("more%d", round), "block")
				c.add(c.lists[len(c.lists)-1].Name, addresses(0, rng.IntN(3)*100)...)
			case 1:
				if len(c.lists) > 2 {
					c.lists = slices.Delete(c.lists, 2, 3)
				}
			case 2:
				files, err := os.ReadDir(filepath.Join(c.folder, filesName))
				if err != nil || len(files) == 0 {
					break
				}
				path := filepath.Join(c.folder, filesName, files[rng.IntN(len(files))].Name())
				if rng.IntN(2) == 0 {
					os.Remove(path)
				} else {
					os.WriteFile(path, []byte(head+"x@y.example\tb\tx\t\t\t\n"), 0o600)
				}
			case 3:
				if rng.IntN(2) == 0 {
					os.RemoveAll(c.folder)
				}
			}
			c.publish()
			c.asWhole()
			once(t, n)
			for _, l := range c.lists {
				if got, want := len(served(t, n.Folder, l.Name)), int(entriesOf(c, l.Name)); got != want {
					t.Fatalf("round %d, list %s: the node has %d lines, want %d", round, l.Name, got, want)
				}
			}
		}
	}
}

// entriesOf is how many entries a list's lines have, each counted once.
func entriesOf(c *channel, list string) int {
	ids := map[string]bool{}
	for l := range c.model[list] {
		key := l[:len(keyOf([]byte(l)))+len("\ta\tx")]
		ids[key] = true
	}
	return len(ids)
}

// Nothing is asked for a second time if nothing has changed, and only what shares a bucket with a change if something has.
func TestLittleIsSortedForALittleChange(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 60_000)...)
	c.publish()
	publish := func() (told *Published, walks, lines int) {
		p := c.publisher()
		defer p.Close()
		p.Workers = 1
		content := c.content()
		all := content.Lines
		content.Lines = func(ctx context.Context, part, parts int, want func(int, []byte) bool, use func(int, []byte) error) error {
			walks++
			return all(ctx, part, parts, want, func(list int, line []byte) error {
				if walks == 2 {
					lines++
				}
				return use(list, line)
			})
		}
		told, err := p.Publish(t.Context(), content, true)
		testkit.Must(t, err)
		return told, walks, lines
	}
	if told, walks, _ := publish(); walks != 1 || told.Added+told.Removed+told.Altered != 0 || told.Written != 0 {
		t.Errorf("nothing has changed: %d walks, %+v", walks, told)
	}
	c.add("spam", "new@more.example")
	if told, walks, lines := publish(); walks != 2 || lines < 1 || lines > 600 || told.Added != 1 || told.Removed != 0 {
		t.Errorf("one entry has come: %d walks, %d lines, %+v", walks, lines, told)
	}
	c.remove("spam", addresses(7, 8)...)
	if told, walks, lines := publish(); walks != 2 || lines > 600 || told.Added != 0 || told.Removed != 1 {
		t.Errorf("one entry is gone: %d walks, %d lines, %+v", walks, lines, told)
	}
}

// based counts the shards of the last sequence whose object is an earlier file, and the octets of all their objects.
func (c *channel) based() (shards int, last *Manifest) {
	c.t.Helper()
	text, err := os.ReadFile(PublishedFile(c.folder))
	testkit.Must(c.t, err)
	if last, err = ParseManifest(text); err != nil {
		c.t.Fatal(err)
	}
	for _, l := range last.Lists {
		for _, s := range l.Shards {
			if s.Base != nil {
				shards++
			}
		}
	}
	return shards, last
}

// fresh has a node that begins with the last sequence, and wants it to have what was published.
func (c *channel) fresh() {
	c.t.Helper()
	n := c.node(c.options())
	once(c.t, n)
	c.agrees(n)
}

// hard are addresses that cannot be packed into much less.
func hard(from, to int) (all []string) {
	for i := from; i < to; i++ {
		h := xxh3.HashString(fmt.Sprint(i))
		all = append(all, fmt.Sprintf("%x@%x.example", h>>24, h&0xffffff))
	}
	return all
}

// A small change writes little into the store, and a node that begins then has everything; also when the publisher's folder is lost, when an
// earlier sequence is published again, and when so much has changed that objects are packed anew.
func TestASmallChangeWritesLittle(t *testing.T) {
	c := newChannel(t)
	c.add("spam", hard(0, 20_000)...)
	first := c.publish()
	change := func(round, size int) {
		c.remove("spam", hard(round*size, (round+1)*size)...)
		for i := range size {
			c.add("spam", hard(1_000_000*(round+1)+i, 1_000_000*(round+1)+i+1)...)
		}
	}
	written := int64(0)
	for round := range 5 {
		change(round, 20)
		told := c.publish()
		written = max(written, told.Written)
		c.fresh()
	}
	if n, _ := c.based(); n < shardCount/2 || written > first.Written/5 {
		t.Errorf("%d shards go back to an earlier file; %d octets were written, and %d at first", n, written, first.Written)
	}
	testkit.Must(t, os.RemoveAll(c.folder))
	sixth := maps.Clone(c.model["spam"])
	change(5, 20)
	if told := c.publish(); told.Added != 20 || told.Removed != 20 {
		t.Errorf("without the folder: %+v", told)
	}
	c.fresh()
	change(6, 2000)
	c.publish()
	c.fresh()
	p := c.publisher()
	told := testkit.Value(p.Again(t.Context(), 6, true))(t)
	testkit.MustEqual(t, "sequence", told.Sequence, 9)
	testkit.Got(p.Again(t.Context(), 77, true))(t, "of a sequence that never was", testkit.Any, "…not kept…")
	p.Close()
	late := c.model["spam"]
	c.model["spam"] = sixth
	c.fresh()
	c.model["spam"] = late
	for round := range 12 { // twice the eighth of each shard, bit by bit
		change(7+round, 450)
		c.publish()
	}
	c.fresh()
}

// Each sequence packs another shard anew, so that deltas from earlier files stay short and no sequence has all of that to do.
func TestEachSequencePacksAnotherShardAnew(t *testing.T) {
	c := newChannel(t)
	c.add("spam", hard(0, 30_000)...)
	c.publish()
	packed := map[int]bool{}
	for round := range 2 {
		c.remove("spam", hard(300*round, 300*(round+1))...) // so many that no shard goes without
		c.add("spam", hard(1_000_000+300*round, 1_000_000+300*(round+1))...)
		c.publish()
		_, m := c.based()
		for i, s := range m.Lists[0].Shards {
			if s.Base == nil {
				packed[i] = true
			}
		}
		testkit.Equal(t, "shards that are packed anew", len(packed), round+1)
	}
	c.fresh()
}

// A store that has nothing of what was published gets everything, and numbers go on.
func TestAnotherStore(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 5000)...)
	c.publish()
	c.add("spam", "x@more.example")
	c.publish()
	n := c.node(c.options())
	once(t, n)
	c.store = Folder(filepath.Join(t.TempDir(), "another"))
	c.add("spam", "y@more.example")
	testkit.Equal(t, "sequence", c.publish().Sequence, 3)
	n.From = c.store
	once(t, n)
	c.agrees(n)
	c.fresh()
}

// Objects that neither the folder nor the store has are written again by the next publication, also if nothing has changed.
func TestLostObjectsAreWrittenAgain(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 3000)...)
	c.publish()
	for _, path := range []string{filepath.Join(c.folder, filesName), filepath.Join(c.folder, objectsName), c.store.path("objects")} {
		testkit.Must(t, os.RemoveAll(path))
	}
	testkit.AtLeast(t, "octets written", c.publish().Written, 1)
	c.fresh()
}

// slow is a store that takes its time for each object, as one behind a network does, and gives up with its context.
type slow struct{ Folder }

func (s slow) Put(ctx context.Context, name string, content io.ReadSeeker, size int64, changes bool) error {
	if strings.HasPrefix(name, "objects/") {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return s.Folder.Put(ctx, name, content, size, changes)
}

// What is still on its way into the store when the last shard is made arrives there.
func TestUploadsOutlastTheShards(t *testing.T) {
	c := newChannel(t)
	for i := range 1000 {
		c.add("spam", fmt.Sprintf("a%d@one.example", i)) // in all shards
	}
	p := c.publisher()
	p.To = slow{c.store}
	defer p.Close()
	testkit.Value(p.Publish(t.Context(), c.content(), true))(t)
}
