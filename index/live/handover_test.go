package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
)

// TestHandover lets one Set after the other take over, as processes do, while others add entries: by the one that has them,
// and by themselves where for a moment none has. What was acknowledged before a turn covers after it, with the index that is
// made of the entries meanwhile: with the successor, and with the predecessor that follows.
func TestHandover(t *testing.T) {
	const rounds, added = 40, 8 // and so many entries in each
	settings := Settings{Folder: t.TempDir(), compactFrom: 40}
	first := open(t, settings)
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
			testkit.Must(t, holder.Load().Tidy())
		}
		next, err := OpenFollowing(settings)
		testkit.Must(t, err)
		next.Served(ix)
		mu.Lock()
		known := append([]string(nil), acknowledged...)
		mu.Unlock()
		testkit.Must(t, holder.Load().Yield())
		for err = next.Resume(); errors.Is(err, ErrLocked); err = next.Resume() { // somebody adds by itself
		}
		testkit.Must(t, err)
		former = append(former, holder.Swap(next))
		covers(fmt.Sprintf("the successor of round %d", round), next, known)
		if len(former) > 3 {
			former = former[1:]
		}
		for _, set := range former {
			testkit.Must(t, set.Follow())
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

// TestYield lets two Sets, as of two processes, take turns at one folder: whoever has it changes entries, by chance, and
// the other follows. Both must always have what a map of the changes has.
func TestYield(t *testing.T) {
	folder := t.TempDir()
	sets := [2]*Set{openAt(t, folder), nil}
	testkit.Must(t, sets[0].Yield())
	sets[1] = openAt(t, folder)
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string]lists.Action{}
	for round := range 40 {
		owner, other := sets[(round+1)%2], sets[round%2]
		for range random.IntN(20) {
			entry := fmt.Sprintf("s%d@example.com", random.IntN(30))
			c := Change{Entry: entry, Action: lists.Action(random.IntN(2)), Remove: random.IntN(3) == 0}
			apply(t, owner, c)
			if delete(want, entry); !c.Remove {
				want[entry] = c.Action
			}
			if _, err := other.Apply(c); !errors.Is(err, ErrYielded) {
				t.Fatalf("a change where the entries are not: %v", err)
			}
		}
		if random.IntN(4) == 0 {
			mustFold(t, owner)
		}
		if random.IntN(2) == 0 {
			testkit.Must(t, other.Follow())
			holdsAll(t, other, want)
		}
		if err := other.Resume(); !errors.Is(err, ErrLocked) {
			t.Fatalf("two have the entries: %v", err)
		}
		testkit.Must(t, owner.Yield())
		testkit.Must(t, other.Resume())
		holdsAll(t, other, want)
	}
}

// TestFollowDamaged holds that a journal which cannot be read costs no entry.
func TestFollowDamaged(t *testing.T) {
	folder := t.TempDir()
	s := openAt(t, folder)
	apply(t, s, Change{Entry: "a@example.com"})
	testkit.Must(t, s.Yield())
	testkit.Must(t, os.WriteFile(journalPath(folder), []byte("something else\nand more\n"), 0o600))
	testkit.IsError(t, "Follow", s.Follow(), errNoJournal)
	holdsAll(t, s, map[string]lists.Action{"a@example.com": lists.Block})
}

func openAt(t *testing.T, folder string) *Set {
	return open(t, Settings{Folder: folder, compactFrom: 8})
}

// holdsAll asks s for each address, listed in want or not, and for their number.
func holdsAll(t *testing.T, s *Set, want map[string]lists.Action) {
	t.Helper()
	testkit.MustEqual(t, "entries", s.Len(), len(want))
	ix := indexes.Build(t, indexes.Source(t, "l", "other@example.org\n"))
	for i := range 30 {
		text, says := fmt.Sprintf("s%d@example.com", i), ""
		if action, listed := want[text]; listed {
			says = action.String() + " " + text
		}
		testkit.MustEqual(t, text, covering(t, s, ix, text), says)
	}
}
