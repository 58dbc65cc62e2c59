package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"

	"blockd/internal/minisign"
	"blockd/internal/testkit"
	"blockd/lists"
)

// twoSequences is a channel with a node that has taken the first of two.
func twoSequences(t *testing.T) (c *channel, n *Node, old []string) {
	t.Helper()
	c = newChannel(t)
	c.add("spam", "a@bulk.example", "b@bulk.example")
	c.publish()
	n = c.node(c.options())
	once(t, n)
	old = served(t, n.Folder, "spam")
	c.add("spam", "c@bulk.example")
	c.publish()
	return c, n, old
}

func (c *channel) read(name string) []byte {
	c.t.Helper()
	return testkit.Value(os.ReadFile(c.store.path(name)))(c.t)
}

func (c *channel) write(name string, text []byte) {
	c.t.Helper()
	testkit.Must(c.t, os.WriteFile(c.store.path(name), text, 0o644))
}

// wanted are the files that a node with the first sequence reads for the second.
func (c *channel) wanted(t *testing.T) (all []string) {
	t.Helper()
	two := testkit.Value(ParseManifest(c.read(manifestName(2))))(t)
	one := testkit.Value(ParseManifest(c.read(manifestName(1))))(t)
	for _, name := range []string{latestName("prod"), manifestName(2)} {
		all = append(all, name, name+minisign.Suffix)
	}
	for object := range two.objects() {
		if !one.objects()[object] {
			all = append(all, objectName(object))
		}
	}
	slices.Sort(all[4:]) // what is read first comes first: what a node has seen once, it takes
	return all
}

// Each file that is missing, cut, empty, longer or another one's: the node serves what it had, and takes the new when the store is well.
func TestEachFaultOfEachFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n, old := twoSequences(t)
		names := c.wanted(t)
		other := map[string]string{latestName("prod"): manifestName(2), manifestName(2): manifestName(1)}
		for _, name := range names {
			good := c.read(name)
			another := names[(slices.Index(names, name)+1)%len(names)]
			if o, ok := other[name]; ok {
				another = o
			}
			for what, text := range map[string][]byte{
				"missing": nil, "empty": {}, "cut in half": good[:len(good)/2], "cut by one": good[:len(good)-2],
				"twice": append(slices.Clone(good), good...), "swapped": c.read(another), "huge": make([]byte, 9<<20),
			} {
				if what == "missing" {
					testkit.Must(t, os.Remove(c.store.path(name)))
				} else {
					c.write(name, text)
				}
				if err := n.Once(t.Context()); err == nil && !(what == "twice" && (strings.HasSuffix(name, minisign.Suffix) || strings.HasPrefix(name, "objects/"))) {
					t.Errorf("%s %s: no error", name, what)
				} else if got := served(t, n.Folder, "spam"); !slices.Equal(got, old) && !slices.Equal(got, sortedModel(c)) {
					t.Errorf("%s %s: another list serves", name, what)
				}
				c.write(name, good)
				if n.Status().Sequence == 2 { // what follows the end of a file is not read
					c.agrees(n)
					n = c.node(c.options())
					rewind(t, n)
				}
			}
		}
		once(t, n)
		c.agrees(n)
	})
}

// rewind brings a fresh node to the first sequence.
func rewind(t *testing.T, n *Node) {
	t.Helper()
	testkit.Must(t, SetPin(n.Folder, 1))
	once(t, n)
	testkit.Must(t, SetPin(n.Folder, 0))
}

// One bit off, at a thousand places of the files of a sequence: never served.
func TestOneBitOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n, old := twoSequences(t)
		rng := rand.New(rand.NewPCG(3, 4))
		names := c.wanted(t)
		for i := range 1000 {
			name := names[i*len(names)/1000]
			good := c.read(name)
			from, end := 0, len(good)
			if strings.HasSuffix(name, minisign.Suffix) { // nobody signs the untrusted comment, nor the last line's end
				from, end = strings.IndexByte(string(good), '\n')+1, len(good)-1
			}
			at, bit := from+rng.IntN(end-from), rng.IntN(8)
			bad := slices.Clone(good)
			bad[at] ^= 1 << bit
			c.write(name, bad)
			if err := n.Once(t.Context()); err == nil || n.Status().Sequence != 1 {
				t.Fatalf("%s, octet %d, bit %d: %v, sequence %d", name, at, bit, err, n.Status().Sequence)
			}
			c.write(name, good)
		}
		testkit.EqualSlices(t, "another list serves", served(t, n.Folder, "spam"), old)
		once(t, n)
		c.agrees(n)
	})
}

func TestWhatIsSignedForAnotherPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n, _ := twoSequences(t)
		once(t, n)
		refused := func(what string, reason Reason) {
			t.Helper()
			if err := n.Once(t.Context()); reasonOf(err) != reason || err == nil || n.Status().Sequence != 2 {
				t.Errorf("%s: %v, want %s; sequence %d", what, err, reason, n.Status().Sequence)
			}
		}
		latest := latestName("prod")
		text, signature := c.read(latest), c.read(latest+minisign.Suffix)
		put := func(text, signature []byte) { c.write(latest, text); c.write(latest+minisign.Suffix, signature) }

		one := c.read(manifestName(1))
		m := testkit.Value(ParseManifest(one))(t)
		l := encode(m.Latest(one))
		put(l, c.key.Sign(l, sequenceComment("prod", 1)))
		refused("an older one", Replayed)
		put(text, minisign.NewSecretKey().Sign(text, sequenceComment("prod", 2)))
		refused("of another key", Signature)
		put(text, c.key.Sign(text, sequenceComment("test", 2)))
		refused("signed for another channel", Signature)
		m.Channel, m.Sequence = "test", 3
		l = encode(m.Latest(one))
		put(l, c.key.Sign(l, sequenceComment("test", 3)))
		refused("another channel's", Signature)
		put(l, c.key.Sign(l, sequenceComment("prod", 3)))
		refused("another channel's, signed for this one", Signature)
		m.Channel, m.Sequence = "prod", 2
		l = encode(m.Latest(append(one, ' ')))
		put(l, c.key.Sign(l, sequenceComment("prod", 2)))
		refused("another manifest of the same number", Replayed)
		put([]byte(`{"blockd":2}`), c.key.Sign([]byte(`{"blockd":2}`), sequenceComment("prod", 3)))
		refused("of another form", Form)
		put(text, signature)
		once(t, n)
	})
}

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n, _ := twoSequences(t)
		o := c.options()
		o.MaxAge = 24 * time.Hour
		away := c.node(o)
		once(t, away)
		once(t, n)
		time.Sleep(Life + time.Second)
		if err := n.Once(t.Context()); reasonOf(err) != Expired {
			t.Errorf("after a day: %v", err)
		}
		fresh := c.node(c.options())
		testkit.Got(reasonOf(fresh.Once(t.Context())), fresh.Status().Sequence)(t, "a new node, of what has expired", Expired, 0)
		time.Sleep(7 * 24 * time.Hour) // the publisher is away for a week
		away.Once(t.Context())
		testkit.Equal(t, "sequence", away.Status().Sequence, 2)
		c.agrees(away)
		if p := away.Problems(); len(p) != 1 || !strings.Contains(p[0], "fleet: snapshot 2 serves on") && !strings.Contains(p[0], "max_age") {
			t.Errorf("problems %q", p)
		}
		c.add("spam", "d@bulk.example")
		c.publish()
		once(t, away) // it was away for eight days
		c.agrees(away)
		if p := away.Problems(); len(p) != 0 {
			t.Errorf("problems %q", p)
		}

		o = c.options()
		o.Built = time.Now().Add(time.Hour)
		early := c.node(o)
		if err := early.Once(t.Context()); reasonOf(err) != Clock || early.Status().Sequence != 0 {
			t.Errorf("a clock before the date of the program: %v", err)
		}
		time.Sleep(2 * time.Hour) // somebody has set it
		once(t, early)
		c.agrees(early)
	})
}

// A node whose clock is an hour off takes a sequence an hour sooner or later than the others, and nothing else happens.
func TestAClockAnHourOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChannel(t)
		c.add("spam", "a@bulk.example")
		c.publish()
		n := c.node(c.options())
		once(t, n)
		c.stages = []PlannedStage{{1, 15 * time.Minute}, {20, 30 * time.Minute}}
		time.Sleep(time.Hour) // the node is an hour before the publisher
		c.add("spam", "b@bulk.example")
		p := c.publisher()
		told, err := p.Publish(t.Context(), c.content(), false)
		p.Close()
		if err != nil || len(told.Stages) != 3 {
			t.Fatal(told, err)
		}
		at := told.Stages[2].From
		for now := time.Now().Add(-time.Hour); now.Unix() < at+int64(time.Hour.Seconds()); now = now.Add(5 * time.Minute) {
			want := now.Unix() >= at || Turn("prod", 2, "mx1") < float64(shareAt(told.Stages, now.Unix()))
			testkit.Equal(t, fmt.Sprintf("at %s", now), n.isTurn(2, told.Stages, now), want)
		}
	})
}

// A node, or its machine, ends at any step: old or new, and the next start goes on.
func TestKilledAnywhere(t *testing.T) {
	c := newChannel(t)
	c.add("spam", "a@bulk.example", "b@bulk.example")
	c.publish()
	c.add("spam", "c@bulk.example")
	c.publish()
	killed := errors.New("killed")
	for at := 1; ; at++ {
		o := c.options()
		n := c.node(o)
		rewind(t, n)
		old := served(t, o.Folder, "spam")
		steps, last := 0, ""
		n.step = func(what string) error {
			if steps++; steps >= at {
				last = what
				return fmt.Errorf("%w before: %s", killed, what)
			}
			return nil
		}
		err := n.Once(t.Context())
		n.Close()
		again := c.node(o)
		if s := again.Status().Sequence; s != 1 && s != 2 {
			t.Fatalf("killed at %q: sequence %d", last, s)
		} else if s == 1 && !slices.Equal(served(t, o.Folder, "spam"), old) || s == 2 && !slices.Equal(served(t, o.Folder, "spam"), sortedModel(c)) {
			t.Fatalf("killed at %q: neither old nor new serves", last)
		}
		once(t, again)
		c.agrees(again)
		again.Close()
		if !errors.Is(err, killed) && last == "" {
			return // there are no more steps
		}
	}
}

func sortedModel(c *channel) (all []string) {
	for l := range c.model["spam"] {
		all = append(all, l)
	}
	slices.Sort(all)
	return all
}

// What a publisher leaves that is killed between two writes is no sequence, and the next one goes on.
func TestAPublisherKilledAnywhere(t *testing.T) { synctest.Test(t, killPublisher) }

func killPublisher(t *testing.T) {
	c := newChannel(t)
	c.add("spam", "a@bulk.example")
	c.publish()
	n := c.node(c.options())
	once(t, n)
	for at := 1; at < 40; at++ {
		c.add("spam", fmt.Sprintf("x%d@bulk.example", at))
		p := c.publisher()
		breaking := &breakingTarget{Folder: c.store, left: at}
		p.To = breaking
		_, err := p.Publish(t.Context(), c.content(), false)
		p.Close()
		if err == nil && breaking.left > 0 {
			break // all writes were done
		}
		if err := n.Once(t.Context()); err != nil && reasonOf(err) != Signature { // of a latest.json whose signature is written already
			t.Fatal(err)
		}
	}
	c.publish()
	once(t, n)
	c.agrees(n)
}

// breakingTarget fails after so many writes.
type breakingTarget struct {
	Folder
	mu   sync.Mutex
	left int
}

func (b *breakingTarget) Put(ctx context.Context, name string, content io.ReadSeeker, size int64, changes bool) error {
	b.mu.Lock()
	b.left--
	over := b.left < 0
	b.mu.Unlock()
	if over {
		return errors.New("killed")
	}
	return b.Folder.Put(ctx, name, content, size, changes)
}

func FuzzManifest(f *testing.F) {
	empty := Shard{Plain: strings.Repeat("0", 64), Octets: 18, Object: strings.Repeat("1", 64) + objectEnding, Size: 20, Deltas: []Delta{{strings.Repeat("2", 64), strings.Repeat("3", 64) + objectEnding, 9}}}
	m := Manifest{Blockd: 1, Channel: "prod", Sequence: 4711, Created: 1795330000, Expires: 1795416400, Previous: 4710, Stages: []Stage{{1, 1795330000}, {100, 1795332700}},
		Lists: []List{{Name: "spam", Action: "block", OnMatch: "refuse", Mode: "enforce", Format: "entries"}}, Ask: []Asked{}, Publisher: Maker{Version: "1"}}
	for range shardCount {
		m.Lists[0].Shards = append(m.Lists[0].Shards, empty)
	}
	based := &m.Lists[0].Shards[1]
	based.Base = &Base{based.Deltas[0].From, 17}
	text := encode(m)
	testkit.Value(ParseManifest(text))(f)
	f.Add(text)
	f.Add(encode(m.Latest(text)))
	f.Add(encode(Pin{4710, 1795332700}))
	f.Add([]byte(`{"blockd":1,"Channel":"prod"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := ParseManifest(text); err == nil && !bytes.Equal(encode(m), text) {
			t.Error("a manifest that is written in two ways")
		}
		if l, err := ParseLatest(text); err == nil && !bytes.Equal(encode(l), text) {
			t.Error("a latest that is written in two ways")
		}
		if p, err := ParsePin(text); err == nil && !bytes.Equal(encode(p), text) {
			t.Error("a pin that is written in two ways")
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add(encode(State{Blockd: 1, Channel: "prod"}))
	f.Add(encode(State{Blockd: 1, Channel: "prod", Highest: 4711, Digest: strings.Repeat("a", 64), Lifted: 7, PinEnds: 9}))
	f.Add([]byte(`{"blockd":1,"channel":"prod","highest":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseState(text)
		if err != nil {
			return
		}
		if !bytes.Equal(encode(s), text) || s.Highest < 0 {
			t.Errorf("%+v of %q", s, text)
		}
	})
}

// FuzzDelta: whatever is said to be a delta, what comes of it is in order and no longer than both together; and the delta of two
// shards makes the one of the other.
func FuzzDelta(f *testing.F) {
	a := head + line("a@bulk.example", lists.Block) + line("c@bulk.example", lists.Block)
	b := head + line("a@bulk.example", lists.Block) + line("b@bulk.example", lists.Allow)
	f.Add([]byte(a), []byte(b))
	f.Add([]byte(a), []byte(head+"-\tc@bulk.example\tb\tx\n"))
	f.Add([]byte(head), []byte(head+"-\tc\n"))
	f.Add([]byte(head), []byte(head[:5]))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var made bytes.Buffer
		if n, err := apply(&made, bytes.NewReader(one), bytes.NewReader(two)); err == nil {
			if made.Len() > len(one)+len(two) || int64(bytes.Count(made.Bytes(), []byte("\n"))) != n+1 {
				t.Errorf("%d entries in %q", n, made.Bytes())
			}
		}
		if n, err := apply(&bytes.Buffer{}, bytes.NewReader(one), strings.NewReader(head)); err != nil || n == 0 || bytes.Contains(one, []byte("\n-\t")) {
			return
		}
		if _, err := apply(&bytes.Buffer{}, bytes.NewReader(two), strings.NewReader(head)); err != nil || bytes.Contains(two, []byte("\n-\t")) {
			return
		}
		var r renewal
		var again bytes.Buffer
		err := r.begin(one, func([]byte) bool { return true })
		for line := range bytes.Lines(two[len(head):]) {
			err = errors.Join(err, r.put(line))
		}
		if err := errors.Join(err, r.end()); err != nil || !bytes.Equal(r.plain.Bytes(), two) {
			t.Errorf("%v: %q, want %q", err, r.plain.Bytes(), two)
		}
		if _, err := apply(&again, bytes.NewReader(one), &r.delta); err != nil || !bytes.Equal(again.Bytes(), two) {
			t.Errorf("%v: %q, want %q", err, again.Bytes(), two)
		}
	})
}

// FuzzUnpack: no octets make more than is allowed.
func FuzzUnpack(f *testing.F) {
	e := testkit.Value(zstd.NewWriter(nil))(f)
	f.Add(e.EncodeAll(bytes.Repeat([]byte("x"), 1<<20), nil))
	f.Add(e.EncodeAll([]byte("short"), nil))
	f.Fuzz(func(t *testing.T, packed []byte) {
		path := filepath.Join(t.TempDir(), "object")
		testkit.Must(t, os.WriteFile(path, packed, 0o600))
		in, end, err := unpackFile(path, 1000)
		if err != nil {
			return
		}
		defer end()
		var out bytes.Buffer
		if n, _ := out.ReadFrom(in); n > 1000 {
			t.Errorf("%d octets", n)
		}
	})
}

func TestTurnsAreEven(t *testing.T) {
	// 300 nodes, 1000 sequences: the share of turns below 20 is 20 percent, within a point.
	below := 0
	for node := range 300 {
		for sequence := range int64(1000) {
			if Turn("prod", sequence+1, "mx"+string(rune('a'+node%26))+time.Duration(node).String()) < 20 {
				below++
			}
		}
	}
	if share := float64(below) / 3000; share < 19 || share > 21 {
		t.Errorf("%.2f percent", share)
	}
}

// TestAlteredOnDisk: whatever is altered in a node's folder is found at the next look or start, and fetched again; an
// altered shard is never there to be read as a list after a start.
func TestAlteredOnDisk(t *testing.T) {
	c := newChannel(t)
	c.add("spam", addresses(0, 500)...)
	c.publish()
	n := c.node(c.options())
	once(t, n)
	files := testkit.Value(filepath.Glob(n.path(filesName, "*")))(t)
	alter := func(path string) {
		t.Helper()
		text := testkit.Read(t, path)
		for i := range text {
			if text[i] == '@' {
				text[i] = '%'
				break
			}
		}
		testkit.Write(t, path, text)
		testkit.Must(t, os.Chtimes(path, time.Now(), time.Now().Add(time.Minute)))
	}
	for what, spoil := range map[string]func(){
		"a shard": func() { alter(files[0]) },
		"all shards": func() {
			for _, f := range files {
				alter(f)
			}
		},
		"a shard has gone": func() { testkit.Must(t, os.Remove(files[1])) },
		"a link has gone":  func() { testkit.Must(t, os.Remove(n.path(currentName, shardName("spam", 0)))) },
		"a link leads to another shard": func() {
			link := n.path(currentName, shardName("spam", 0))
			testkit.Must(t, os.Remove(link))
			testkit.Must(t, os.Symlink(testkit.Value(os.Readlink(n.path(currentName, shardName("spam", 1))))(t), link))
		},
		"a file in the place of a link": func() {
			link := n.path(currentName, shardName("spam", 0))
			testkit.Must(t, os.Remove(link))
			testkit.Write(t, link, "")
		},
		"a folder in the place of a link": func() {
			link := n.path(currentName, shardName("spam", 0))
			testkit.Must(t, os.Remove(link))
			testkit.Write(t, filepath.Join(link, "x"), "")
		},
		"the folder of a list has gone": func() { testkit.Must(t, os.RemoveAll(n.path(currentName, listsName, "spam"))) },
		"a shard is shorter":            func() { testkit.Must(t, os.Truncate(files[2], 3)) },
	} {
		spoil()
		once(t, n)
		c.agrees(n)
		testkit.Equal(t, what+": problems", len(n.Problems()), 0)
		spoil()
		n.Close()
		n = c.node(n.Options)
		for _, f := range files { // before the first look
			if text, err := os.ReadFile(f); err == nil && sumOf(text) != filepath.Base(f) {
				t.Errorf("%s: %s is there to be read", what, f)
			}
		}
		once(t, n)
		c.agrees(n)
	}
	for what, path := range map[string]string{"the state": n.path(stateName), "the manifest in force": n.path(currentName, manifestFile)} {
		for _, text := range []string{"", "{half", "null"} {
			testkit.Write(t, path, text)
			n.Close()
			n = c.node(n.Options)
			links := n.path(currentName, listsName, "spam", "*.ent")
			count := len(testkit.Value(filepath.Glob(links))(t))
			n.step = func(step string) error { // who reads the lists meanwhile reads all of them
				there := testkit.Value(filepath.Glob(links))(t)
				for _, path := range there {
					testkit.Value(os.ReadFile(path))(t)
				}
				testkit.Equal(t, what+": files to be read before: "+step, len(there), count)
				return nil
			}
			once(t, n)
			c.agrees(n)
			testkit.Got(n.Status().Sequence, n.state.Highest)(t, what, 1, 1)
		}
	}
	testkit.Write(t, n.path(stateName), "")
	testkit.Must(t, os.Remove(n.path(latestFile)))
	n.Close()
	if err := n.Open(); err == nil || !strings.Contains(err.Error(), "mv "+n.path(stateName)+" ") {
		t.Errorf("a state that cannot be made anew: %v", err)
	}
}
