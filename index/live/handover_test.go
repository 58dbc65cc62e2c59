package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"blockd/internal/testkit/indexes"
)

// TestHandover lets one Set after the other take over, as processes do, while others add entries: by the one that has them,
// and by themselves where for a moment none has. What was acknowledged before a turn covers after it, with the index that is
// made of the entries meanwhile: with the successor, and with the predecessor that follows.
func TestHandover(t *testing.T) {
	const rounds, added = 40, 8 // and so many entries in each
	settings := Settings{Folder: t.TempDir(), compactFrom: 40}
	first, err := Open(settings)
	if err != nil {
		t.Fatal(err)
	}
	var holder atomic.Pointer[Set]
	holder.Store(first)
	var mu sync.Mutex
	var acknowledged []string
	work := make(chan string, rounds*added)
	var adders sync.WaitGroup
	for range 4 {
		adders.Go(func() {
			for entry := range work {
				if err := addSomehow(settings, &holder, entry); err != nil {
					t.Errorf("%s: %v", entry, err)
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, entry)
				mu.Unlock()
			}
		})
	}
	base := indexes.Source(t, "l", "bulk.example\n")
	ix := indexes.Build(t, base)
	random := rand.New(rand.NewPCG(1, 2))
	covers := func(what string, set *Set, known []string) {
		for _, entry := range known {
			if covering(t, set, ix, entry) == "" {
				t.Fatalf("%s: %s is lost", what, entry)
			}
		}
	}
	var former []*Set
	for round := range rounds {
		for n := range added {
			work <- fmt.Sprintf("a%d-%d@example.com", round, n)
		}
		if random.IntN(3) > 0 {
			if _, err := holder.Load().Fold(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if random.IntN(3) > 0 {
			ix = indexes.Build(t, base, folded(settings.Folder))
			for _, set := range append(former, holder.Load()) {
				set.Served(ix)
			}
		}
		if random.IntN(3) == 0 {
			if err := holder.Load().Tidy(); err != nil {
				t.Fatal(err)
			}
		}
		next, err := OpenFollowing(settings)
		if err != nil {
			t.Fatal(err)
		}
		next.Served(ix)
		mu.Lock()
		known := append([]string(nil), acknowledged...)
		mu.Unlock()
		if err := holder.Load().Yield(); err != nil {
			t.Fatal(err)
		}
		for err = next.Resume(); errors.Is(err, ErrLocked); err = next.Resume() { // somebody adds by itself
		}
		if err != nil {
			t.Fatal(err)
		}
		former = append(former, holder.Swap(next))
		covers(fmt.Sprintf("the successor of round %d", round), next, known)
		if len(former) > 3 {
			former = former[1:]
		}
		for _, set := range former {
			if err := set.Follow(); err != nil {
				t.Fatal(err)
			}
			covers(fmt.Sprintf("a predecessor in round %d", round), set, known)
		}
	}
	close(work)
	adders.Wait()
	covers("the last", holder.Load(), acknowledged)
	read, err := Read(settings.Folder)
	if err != nil || read.Len() != len(acknowledged) {
		t.Errorf("%d entries are there, %d were acknowledged: %v", read.Len(), len(acknowledged), err)
	}
}

// addSomehow adds an entry as blockd add does: by itself, or where somebody has the entries by that one.
func addSomehow(settings Settings, holder *atomic.Pointer[Set], entry string) error {
	for {
		alone, err := Open(settings)
		if err == nil {
			_, err = alone.Apply(Change{Entry: entry})
			return errors.Join(err, alone.Close())
		}
		if !errors.Is(err, ErrLocked) {
			return err
		}
		if _, err := holder.Load().Apply(Change{Entry: entry}); !errors.Is(err, ErrYielded) {
			return err
		}
	}
}
