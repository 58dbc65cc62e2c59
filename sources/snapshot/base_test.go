package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/zeebo/xxh3"

	"blockd/internal/testkit"
)

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
	change(5, 20)
	if told := c.publish(); told.Added != 20 || told.Removed != 20 {
		t.Errorf("without the folder: %+v", told)
	}
	c.fresh()
	good := c.model["spam"]
	c.model["spam"] = map[string]bool{}
	for l := range good {
		c.model["spam"][l] = true
	}
	change(6, 2000)
	c.publish()
	c.fresh()
	p := c.publisher()
	told, err := p.Again(t.Context(), 6, true)
	p.Close()
	if err != nil || told.Sequence != 9 {
		t.Fatalf("%+v, %v", told, err)
	}
	n := c.node(c.options())
	once(t, n)
	if got := len(served(t, n.Folder, "spam")); got != 20_000 {
		t.Errorf("%d lines of what was published again", got)
	}
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
		if len(packed) != round+1 {
			t.Errorf("%d shards are packed anew after %d changes", len(packed), round+1)
		}
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
	if told := c.publish(); told.Sequence != 3 {
		t.Errorf("sequence %d", told.Sequence)
	}
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
	if told := c.publish(); told.Written == 0 {
		t.Errorf("%+v", told)
	}
	c.fresh()
}
