package ask

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/sources/mirror"
)

// origin is a store whose keys are read: entries, and a log of what has changed.
type origin struct {
	mu      sync.Mutex
	entries []string
	log     []mirror.Change
	fault   error
	reads   int
	hint    chan struct{}
}

func (o *origin) Close() error                                { return nil }
func (o *origin) Fingerprint(context.Context) (string, error) { return "a store", o.now() }

func (o *origin) now() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fault
}

func (o *origin) All(_ context.Context, yield func(mirror.Row) error) (mirror.Mark, error) {
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
