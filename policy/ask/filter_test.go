package ask

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/policy/verdict"
	"blockd/sources/mirror"
)

func domain(n int) addr.Key {
	return addr.Key{Text: fmt.Sprintf("b%d.example", n), Kind: addr.Domain, Labels: 2}
}

func filled(n int) *Filter {
	f := NewFilter(uint64(n))
	for i := range n {
		f.Add(domain(i))
	}
	f.mark, f.fingerprint = "17-3", "postgres db senders"
	return f
}

func TestFilterFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.bdf")
	for _, n := range []int{0, 1, 3000, 100_000} {
		f := filled(n)
		f.added.Store(5)
		f.gone.Store(7)
		testkit.Must(t, f.write(path))
		g := testkit.Value(OpenFilter(path))(t)
		for i := range n {
			if g.perhaps([]addr.Key{domain(i)}) != 1 {
				t.Fatalf("%d keys: key %d is lost", n, i)
			}
		}
		if g.mark != f.mark || g.fingerprint != f.fingerprint || g.keys.Load() != f.keys.Load() || g.sized != f.sized || g.added.Load() != 5 ||
			g.gone.Load() != 7 || g.kinds.Load() != f.kinds.Load() || g.seed != f.seed || g.build != f.build {
			t.Errorf("%d keys: %+v, want %+v", n, g, f)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || uint64(info.Size()) != fileSize(f.bits.Blocks()) {
			t.Errorf("%v, %v", info, err)
		}
	}
}

// TestEveryOctetCounts: a file of which one bit is another is refused, and never read as a filter that lacks a key.
func TestEveryOctetCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.bdf")
	testkit.Must(t, filled(3000).write(path))
	text := testkit.Value(os.ReadFile(path))(t)
	for at := 0; at < len(text); at += 1 + at/1024 {
		bad := bytes.Clone(text)
		bad[at] ^= 1 << (at % 8)
		if _, err := readFilter(bytes.NewReader(bad), uint64(len(bad))); !errors.Is(err, ErrFilter) {
			t.Fatalf("octet %d is another, and the error is %v", at, err)
		}
	}
	for _, n := range []int{0, 1, 4095, 4096, 8192, len(text) - 1} {
		testkit.Fails(readFilter(bytes.NewReader(text[:n]), uint64(n)))(t, fmt.Sprintf("cut off after %d octets", n), ErrFilter)
	}
	if _, err := readFilter(bytes.NewReader(text[:len(text)-1]), uint64(len(text))); err == nil {
		t.Error("a file that ends while it is read is taken")
	}
	testkit.Fails(OpenFilter(filepath.Join(t.TempDir(), "none.bdf")))(t, "no file", os.ErrNotExist)
}

// TestWrittenWhileItGrows is for the race detector: what is written is whole, and has what was there before.
func TestWrittenWhileItGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.bdf")
	f := filled(5000)
	var group sync.WaitGroup
	group.Go(func() {
		for i := range 5000 {
			f.Add(domain(5000 + i))
		}
	})
	err := f.write(path)
	group.Wait()
	testkit.Must(t, err)
	g := testkit.Value(OpenFilter(path))(t)
	for i := range 5000 {
		testkit.MustEqual(t, fmt.Sprintf("key %d is lost", i), g.perhaps([]addr.Key{domain(i)}), 1)
	}
}

func TestAMarkThatDoesNotFit(t *testing.T) {
	f := filled(1)
	f.fingerprint = string(make([]byte, maxTexts))
	if err := f.write(filepath.Join(t.TempDir(), "list.bdf")); err == nil {
		t.Error("it was written")
	}
}

func FuzzFilterFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "list.bdf")
	for _, n := range []int{0, 3000} {
		testkit.Must(f, filled(n).write(path))
		text := testkit.Value(os.ReadFile(path))(f)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if g, err := readFilter(bytes.NewReader(text), uint64(len(text))); err == nil && g.perhaps([]addr.Key{domain(1)}) > 1 {
			t.Error("an answer about a key that was not asked")
		}
		if len(text) < pageSize {
			return
		}
		text = bytes.Clone(text) // with a header that says that it is right
		binary.LittleEndian.PutUint32(text[headSumAt:], crc32.Checksum(text[:headSumAt], castagnoli))
		g, err := readFilter(bytes.NewReader(text), uint64(len(text)))
		if err != nil {
			return
		}
		if head := g.header(); !bytes.Equal(head[:104], text[:104]) {
			t.Errorf("the header %x is read as %x", text[:104], head[:104])
		}
	})
}

// perhaps1 is perhaps for one key.
func (f *Filter) perhaps1(k addr.Key) bool { return f.perhaps([]addr.Key{k}) == 1 }

// BenchmarkClearSender is what a list of a million addresses and names adds to a sender that is not on its filter. The
// sender has four keys: the address, its local-part, the domain and its parent.
func BenchmarkClearSender(b *testing.B) {
	s, all := newSet(b, &scripted{answer: having()}, nil)
	f := NewFilter(1_000_000)
	for i := range 500_000 {
		f.Add(domain(i))
		f.Add(addr.Key{Text: fmt.Sprintf("u%d@b%d.example", i, i), Kind: addr.Address})
	}
	f.Add(addr.Key{Text: "offers@", Kind: addr.Local})
	f.Add(addr.Key{Text: "invalid", Kind: addr.Domain, Labels: 1})
	s.UseFilter(f)
	var senders []addr.Addr
	for i := 0; len(senders) < 1<<12; i++ {
		a, err := addr.Parse(fmt.Sprintf("someone.%d@c%d.example", i, i))
		testkit.Must(b, err)
		if all.Begin(a, addr.Key{}, verdict.EnvelopeSource) == nil {
			senders = append(senders, a)
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if all.Begin(senders[i&(len(senders)-1)], addr.Key{}, verdict.EnvelopeSource) != nil {
			b.Fatal("perhaps")
		}
		i++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4, "ns/key")
}

// origin is a store whose keys are read: entries, and a log of what has changed.
type origin struct {
	mu      sync.Mutex
	entries []string
	log     []mirror.Change
	fault   error
	reads   int
	hint    chan struct{}
	blind   error // of Changes; nil = they are told
	slow    time.Duration
	said    bytes.Buffer // the log
}

func (o *origin) Close() error                                { return nil }
func (o *origin) Fingerprint(context.Context) (string, error) { return "a store", o.now() }

func (o *origin) now() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fault
}

func (o *origin) All(_ context.Context, yield func(mirror.Row) error) (mirror.Mark, error) {
	time.Sleep(o.slow) // 0, or in a bubble
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	for _, e := range o.entries {
		if err := yield(mirror.Row{Entry: e}); err != nil {
			return "", err
		}
	}
	return mirror.Mark(strconv.Itoa(len(o.log))), o.fault
}

func (o *origin) Changes(_ context.Context, since mirror.Mark, yield func(mirror.Change) error) (mirror.Mark, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.blind != nil {
		return "", o.blind
	}
	n, err := strconv.Atoi(string(since))
	if err != nil || n > len(o.log) {
		return "", mirror.ErrTooOld
	}
	for _, c := range o.log[n:] {
		if err := yield(c); err != nil {
			return "", err
		}
	}
	return mirror.Mark(strconv.Itoa(len(o.log))), o.fault
}

func (o *origin) Wait(ctx context.Context) error {
	select {
	case <-o.hint:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change adds an entry, or removes it, and gives a hint.
func (o *origin) change(entry string, there bool) {
	o.mu.Lock()
	c := mirror.Change{Entry: entry}
	if there {
		c.Rows, o.entries = []mirror.Row{{Entry: entry}}, append(o.entries, entry)
	} else {
		o.entries = slices.DeleteFunc(o.entries, func(e string) bool { return e == entry })
	}
	o.log = append(o.log, c)
	o.mu.Unlock()
	o.hint <- struct{}{}
}

func (o *origin) set(fault error) { o.mu.Lock(); o.fault = fault; o.mu.Unlock() }

// keeping keeps the filter of a new list until end is called.
func keeping(t *testing.T, o *origin, path string) (s *Set, end func()) {
	t.Helper()
	s, _ = newSet(t, &scripted{answer: having()}, nil)
	s.local.Store(nil)
	s.log = slog.New(slog.NewTextHandler(&o.said, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Keep(ctx, Keeping{Path: path, Open: func() (mirror.Source, error) { return o, nil }, Every: time.Minute, Reconcile: time.Hour})
	}()
	end = sync.OnceFunc(func() {
		cancel()
		testkit.Should(t, <-done)
	})
	t.Cleanup(end)
	return s, end
}

func (s *Set) has(t *testing.T, entry string) bool {
	t.Helper()
	key, ok := s.keyOf(entry)
	f := s.local.Load()
	return ok && f != nil && f.perhaps1(key)
}

func TestTheFilterFollowsItsStore(t *testing.T) {
	o := &origin{hint: make(chan struct{}, 100), entries: []string{"a@b.example", "B.example", "192.0.2.1"}}
	path := filepath.Join(t.TempDir(), "list.bdf")
	s, end := keeping(t, o, path)
	testkit.Eventually(t, "a filter", func() bool { return s.has(t, "a@b.example") && s.has(t, "b.example") })
	testkit.Eventually(t, "its state", func() bool { now := s.Status(); return now.State == mirror.OK && now.Rows == 2 })
	o.change("new@b.example", true)
	testkit.Eventually(t, "a new entry", func() bool { return s.has(t, "new@b.example") })
	o.change("a@b.example", false)
	o.set(errors.New("away"))
	o.change("later@b.example", true)
	testkit.Eventually(t, "a store that is away", func() bool { return s.Status().State == mirror.Away })
	if !s.Loaded() || !s.has(t, "new@b.example") {
		t.Error("the filter went with its store")
	}
	o.set(nil)
	testkit.Eventually(t, "what was missed", func() bool { return s.has(t, "later@b.example") && s.Status().State == mirror.OK })
	end()

	o.change("while@b.example", true) // while nobody listens
	reads := o.reads
	s, end = keeping(t, o, path)
	testkit.Eventually(t, "the filter of before, with what has come since", func() bool { return s.has(t, "later@b.example") && s.has(t, "while@b.example") })
	end()
	testkit.Equal(t, "everything was read again at a restart", o.reads, reads)

	testkit.Must(t, os.WriteFile(path, []byte("no filter"), 0o600))
	s, _ = keeping(t, o, path)
	testkit.Eventually(t, "a filter in place of a damaged one", func() bool { return s.has(t, "while@b.example") })
}

// TestUnloggedStoreIsReadWhole: a store that does not tell what has come is read whole, so that its new entries are
// asked for, and is not ok.
func TestUnloggedStoreIsReadWhole(t *testing.T) {
	o := &origin{hint: make(chan struct{}, 100), blind: &mirror.Unlogged{Why: "{blockd:a}:log is not there", Hint: "blockd source lua a"}}
	s, _ := keeping(t, o, filepath.Join(t.TempDir(), "list.bdf"))
	testkit.Eventually(t, "a filter", s.Loaded)
	o.change("new@b.example", true)
	testkit.Eventually(t, "an entry that no change has told of", func() bool { return s.has(t, "new@b.example") })
	testkit.Eventually(t, "what the state says", func() bool {
		now := s.Status()
		return now.State == mirror.OK && now.Class == mirror.ClassUnlogged && strings.Contains(now.Error, "hint: blockd source lua a")
	})
	o.mu.Lock()
	o.blind = nil
	o.mu.Unlock()
	o.change("later@b.example", true)
	testkit.Eventually(t, "it follows again", func() bool { return s.has(t, "later@b.example") && s.Status().Error == "" })
}

// TestMendedStoreIsFollowedAtOnce: a store that was read whole rests for nine times as long, and is asked meanwhile
// whether it tells its changes again. That it does not is logged now and then.
func TestMendedStoreIsFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{hint: make(chan struct{}, 100), slow: 4 * time.Minute, blind: &mirror.Unlogged{Why: "no trigger", Hint: "blockd source ddl a"}}
		s, end := keeping(t, o, filepath.Join(t.TempDir(), "list.bdf"))
		time.Sleep(85 * time.Minute) // read for four minutes, at rest up to the 36th, twice; and read once more
		o.mu.Lock()
		o.blind, o.entries = nil, []string{"new@b.example"}
		reads := o.reads
		o.log = append(o.log, mirror.Change{Entry: "new@b.example", Rows: []mirror.Row{{Entry: "new@b.example"}}})
		o.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if !s.has(t, "new@b.example") || s.Status().Error != "" || o.reads != reads || reads != 3 {
			t.Errorf("after two polls %+v, %d and %d full reads", s.Status(), reads, o.reads)
		}
		end()
		if n := strings.Count(o.said.String(), "does not follow its store"); n != 2 {
			t.Errorf("%d lines, want one for each full read that was in vain: %s", n, &o.said)
		}
	})
}

func TestAWornFilterIsBuiltAnew(t *testing.T) {
	o := &origin{hint: make(chan struct{}, 10_000)}
	s, _ := keeping(t, o, filepath.Join(t.TempDir(), "list.bdf"))
	testkit.Eventually(t, "a filter", s.Loaded)
	for i := range 2 * leastKeys {
		o.change(fmt.Sprintf("u%d@b.example", i), true)
	}
	testkit.Eventually(t, "a larger one", func() bool {
		f := s.local.Load()
		return f.sized >= 5*leastKeys/4 && s.has(t, fmt.Sprintf("u%d@b.example", 2*leastKeys-1)) && s.has(t, "u0@b.example")
	})
}
