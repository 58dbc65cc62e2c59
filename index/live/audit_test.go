package live

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/lists"
	"blockd/records/audit"
)

// journalled is a Set with a journal, and what the journal says, the oldest first, without hashes.
func journalled(t *testing.T) (set *Set, folder string, said func() []string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "audit")
	set, err := Open(Settings{Folder: filepath.Join(t.TempDir(), "live"), Audit: audit.New(audit.Settings{Folder: folder, Max: 1 << 20, Keep: time.Hour})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set, folder, func() (all []string) {
		t.Helper()
		found, err := audit.Search(context.Background(), folder, audit.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range slices.Backward(found.Lines) {
			all = append(all, strings.Join([]string{l.By, l.Action, l.Subject, l.Why, l.Detail}, "|"))
		}
		return all
	}
}

// Each change has its line, a change that changes nothing has none, and what was removed stays readable.
func TestChangesAreAudited(t *testing.T) {
	set, _, said := journalled(t)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for _, changes := range [][]Change{
		{{Entry: "A.example", Author: "anna", Why: "phishing"}, {Entry: "b.example", Author: "anna", Action: lists.Allow, Expires: until}},
		{{Entry: "a.example", Author: "anna", Why: "phishing"}}, // as it is
		{{Entry: "a.example", Author: "bert", Action: lists.Allow}},
		{{Entry: "a.example", Author: "carl", Why: "ticket 7", Remove: true}, {Entry: "none.example", Author: "carl", Remove: true}},
	} {
		if _, err := set.Apply(changes...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := set.Apply(Change{Entry: "c.example", Why: "two\nlines"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("two lines: %v", err)
	}
	at := time.Now().UTC().Format(time.RFC3339)[:11] // the day, unless it is midnight
	want := []string{
		"anna|entry.add|block a.example|phishing|",
		"anna|entry.add|allow b.example||until " + until.Format(time.RFC3339),
		"bert|entry.change|allow a.example||was block, added " + at,
		"carl|entry.remove|allow a.example|ticket 7|was allow, added " + at,
	}
	have := said()
	if len(have) != len(want) {
		t.Fatalf("%q", have)
	}
	for i := range want {
		if !strings.HasPrefix(have[i], want[i]) {
			t.Errorf("line %d: %q, want %q", i, have[i], want[i])
		}
	}
	if !strings.HasSuffix(have[2], " by anna: phishing") || !strings.HasSuffix(have[3], " by bert") {
		t.Errorf("what was before: %q, %q", have[2], have[3])
	}
}

// Nothing changes that the journal cannot have.
func TestNoChangeWithoutAudit(t *testing.T) {
	set, folder, said := journalled(t)
	if err := os.WriteFile(folder, nil, 0o600); err != nil { // no folder can be made there
		t.Fatal(err)
	}
	if _, err := set.Apply(Change{Entry: "a.example"}); !errors.Is(err, audit.ErrUnwritable) {
		t.Fatalf("a change without its line: %v", err)
	}
	if set.Len() != 0 {
		t.Error("it acts all the same")
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := set.Apply(Change{Entry: "a.example"}); err != nil || set.Len() != 1 || len(said()) != 1 {
		t.Errorf("afterwards: %v, %d entries, %q", err, set.Len(), said())
	}
}

// A change that has its line and cannot be made has another one that says so.
func TestFailedChangeIsAudited(t *testing.T) {
	set, _, said := journalled(t)
	set.writing.Lock()
	set.journal.broken = errors.New("the sync failed")
	set.writing.Unlock()
	if _, err := set.Apply(Change{Entry: "a.example", Author: "anna"}); err == nil {
		t.Fatal("changed")
	}
	if have := said(); len(have) != 2 || have[0] != "anna|entry.add|block a.example||" || !strings.HasPrefix(have[1], "anna|failed|block a.example||entry.add: ") {
		t.Errorf("%q", have)
	}
}
