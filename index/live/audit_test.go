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

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/records/audit"
)

// journalled is a Set with a journal, and what the journal says, the oldest first, without hashes.
func journalled(t *testing.T) (set *Set, folder string, said func() []string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "audit")
	set = open(t, Settings{Audit: audit.New(audit.Settings{Folder: folder, Max: 1 << 20, Keep: time.Hour})})
	return set, folder, func() (all []string) {
		t.Helper()
		found := testkit.Value(audit.Search(context.Background(), folder, audit.Query{}))(t)
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
		apply(t, set, changes...)
	}
	testkit.Fails(set.Apply(Change{Entry: "c.example", Why: "two\nlines"}))(t, "two lines", ErrInvalid)
	at := time.Now().UTC().Format(time.RFC3339)[:11] // the day, unless it is midnight
	want := []string{
		"anna|entry.add|block a.example|phishing|",
		"anna|entry.add|allow b.example||until " + until.Format(time.RFC3339),
		"bert|entry.change|allow a.example||was block, added " + at,
		"carl|entry.remove|allow a.example|ticket 7|was allow, added " + at,
	}
	have := said()
	testkit.MustEqual(t, "lines", len(have), len(want))
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
	testkit.Equal(t, "it acts all the same", set.Len(), 0)
	testkit.Must(t, os.Remove(folder))
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

// What was removed, or has ended, is in no file after Erase, and the journal of changes does not name it; what is there stays.
func TestErase(t *testing.T) {
	set, _, said := journalled(t)
	folder := set.folder
	apply(t, set, Change{Entry: "bob@there.example"}, Change{Entry: "carl@there.example"}, Change{Owner: "anna@here.example", Entry: "dora@there.example"},
		Change{Entry: "emil@there.example"})
	mustFold(t, set)
	set.stale = true
	if err := set.rewrite(true); err != nil { // into the snapshot
		t.Fatal(err)
	}
	apply(t, set, Change{Entry: "bob@there.example", Remove: true, Author: "op", Journal: "person 17"},
		Change{Owner: "anna@here.example", Entry: "dora@there.example", Remove: true, Author: "op", Journal: "person 18"},
		Change{Entry: "emil@there.example", Remove: true, Author: "op"})
	testkit.Must(t, set.Erase(context.Background()))
	apply(t, set, Change{Entry: "frank@there.example"})
	all := ""
	err := filepath.WalkDir(folder, func(path string, f os.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all += string(text)
		return err
	})
	testkit.Must(t, err)
	for _, gone := range []string{"bob@", "dora@", "anna@", "emil@"} {
		if strings.Contains(all, gone) {
			t.Errorf("a file has %s", gone)
		}
	}
	lines := strings.Join(said(), "\n")
	if !strings.Contains(lines, "op|entry.remove|person 17||\nop|entry.remove|person 18||\nop|entry.remove|block emil@there.example|") {
		t.Errorf("the journal:\n%s", lines)
	}
	testkit.Must(t, set.Close())
	again := open(t, Settings{Folder: folder})
	var left []string
	for e := range again.All() {
		left = append(left, e.Text)
	}
	testkit.Equal(t, "left", strings.Join(left, " "), "frank@there.example carl@there.example")
}
