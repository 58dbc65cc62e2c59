package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"blockd/internal/testkit/indexes"
	"blockd/lists"
)

// TestYield lets two Sets, as of two processes, take turns at one folder: whoever has it changes entries, by chance, and
// the other follows. Both must always have what a map of the changes has.
func TestYield(t *testing.T) {
	folder := t.TempDir()
	sets := [2]*Set{openAt(t, folder), nil}
	if err := sets[0].Yield(); err != nil {
		t.Fatal(err)
	}
	sets[1] = openAt(t, folder)
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string]lists.Action{}
	for round := range 40 {
		owner, other := sets[(round+1)%2], sets[round%2]
		for range random.IntN(20) {
			entry := fmt.Sprintf("s%d@example.com", random.IntN(30))
			c := Change{Entry: entry, Action: lists.Action(random.IntN(2)), Remove: random.IntN(3) == 0}
			if _, err := owner.Apply(c); err != nil {
				t.Fatal(err)
			}
			if delete(want, entry); !c.Remove {
				want[entry] = c.Action
			}
			if _, err := other.Apply(c); !errors.Is(err, ErrYielded) {
				t.Fatalf("a change where the entries are not: %v", err)
			}
		}
		if random.IntN(4) == 0 {
			if _, err := owner.Fold(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if random.IntN(2) == 0 {
			if err := other.Follow(); err != nil {
				t.Fatal(err)
			}
			holdsAll(t, other, want)
		}
		if err := other.Resume(); !errors.Is(err, ErrLocked) {
			t.Fatalf("two have the entries: %v", err)
		}
		if err := owner.Yield(); err != nil {
			t.Fatal(err)
		}
		if err := other.Resume(); err != nil {
			t.Fatal(err)
		}
		holdsAll(t, other, want)
	}
}

// TestFollowDamaged holds that a journal which cannot be read costs no entry.
func TestFollowDamaged(t *testing.T) {
	folder := t.TempDir()
	s := openAt(t, folder)
	if _, err := s.Apply(Change{Entry: "a@example.com"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Yield(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(journalPath(folder), []byte("something else\nand more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Follow(); !errors.Is(err, errNoJournal) {
		t.Errorf("Follow = %v", err)
	}
	holdsAll(t, s, map[string]lists.Action{"a@example.com": lists.Block})
}

func openAt(t *testing.T, folder string) *Set {
	t.Helper()
	s, err := Open(Settings{Folder: folder, compactFrom: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// holdsAll asks s for each address, listed in want or not, and for their number.
func holdsAll(t *testing.T, s *Set, want map[string]lists.Action) {
	t.Helper()
	if s.Len() != len(want) {
		t.Fatalf("%d entries, want %d", s.Len(), len(want))
	}
	ix := indexes.Build(t, indexes.Source(t, "l", "other@example.org\n"))
	for i := range 30 {
		text, says := fmt.Sprintf("s%d@example.com", i), ""
		if action, listed := want[text]; listed {
			says = action.String() + " " + text
		}
		if got := covering(t, s, ix, text); got != says {
			t.Fatalf("%s: %q, want %q", text, got, says)
		}
	}
}
