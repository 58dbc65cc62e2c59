package snapshot

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/minisign"
	"blockd/internal/testkit"
	"blockd/lists"
)

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
	told := testkit.Value(p.Publish(c.t.Context(), c.content(), false))(c.t)
	return told
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
		if !ok {
			t.Fatalf("%s: no head", path)
		}
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
