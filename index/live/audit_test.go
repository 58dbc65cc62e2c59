package live

import (
	"context"
	"errors"
	"fmt"
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
		testkit.Begins(t, fmt.Sprintf("line %d", i), have[i], want[i])
	}
	if !strings.HasSuffix(have[2], " by anna: phishing") || !strings.HasSuffix(have[3], " by bert") {
		t.Errorf("what was before: %q, %q", have[2], have[3])
	}
}

// Nothing changes that the journal cannot have.
func TestNoChangeWithoutAudit(t *testing.T) {
	set, folder, said := journalled(t)
	testkit.Must(t, os.WriteFile(folder, nil, 0o600)) // no folder can be made there
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
	testkit.Must(t, set.rewrite(true)) // into the snapshot
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
		testkit.Lacks(t, all, gone)
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

// Revisions, and up to which one the entries are, are in the journal and in the snapshot.
func TestRevisionsAreKept(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "live")
	open := func() *Set { return open(t, Settings{Folder: folder}) }
	set := open()
	rows := []Row{
		{Entry: "one.example", Scope: "tree", Action: "block", Why: "1", By: "anna", Created: 1_790_000_000, Rev: 7},
		{Entry: "two.example", Scope: "tree", Action: "allow", Proof: true, Created: 1_790_000_000, Expires: time.Now().Unix() + 1000, Rev: 9},
		{Entry: "x@three.example", Owner: "anna@here.example", Scope: "exact", Action: "block", Forced: true, Created: 1_790_000_000, Rev: 12},
		{Entry: "four.example", Scope: "tree", Action: "block", Created: 1_790_000_000, Rev: 13},
	}
	at := Cursor{Origin: "postgres/eu-mx/abc", Revision: 13}
	taken := testkit.Value(set.Take(rows, at, false))(t)
	testkit.MustEqual(t, fmt.Sprintf("Take() = %+v", taken), [...]int{len(taken.Outcomes), len(taken.Left)}, [...]int{4, 0})
	rows[3].Gone, rows[3].Rev = 1_790_000_001, 20
	at.Revision = 20
	testkit.Value(set.Take(rows[3:], at, false))(t)
	testkit.Value(set.Apply(Change{Entry: "own.example"}))(t) // of this machine alone
	// An older change does not come after a newer one, unless it is meant.
	older := rows[0]
	older.Rev, older.Why = 3, "older"
	testkit.Equal(t, "an older change was taken", len(testkit.Value(set.Take([]Row{older}, at, false))(t).Outcomes), 0)
	sum := set.Sum()
	for _, when := range []string{"from the journal", "from the snapshot"} {
		if when == "from the snapshot" {
			set.writing.Lock()
			set.stale = true
			set.writing.Unlock()
			testkit.Must(t, set.rewrite(true))
		}
		testkit.Must(t, set.Close())
		set = open()
		testkit.Equal(t, fmt.Sprintf("%s: Cursor", when), set.Cursor(), at)
		if now := set.Sum(); now != sum || sum.Count != 3 {
			t.Errorf("%s: Sum() = %+v, want %+v of three", when, now, sum)
		}
		for _, want := range rows[:3] {
			e := set.Get(&want)
			if e == nil || RowOf(e) != want {
				t.Errorf("%s: %+v, want %+v", when, e, want)
			}
		}
		testkit.Equal(t, fmt.Sprintf("%s: entries", when), len(held(set)), 4)
		for e := range set.All() {
			if e.Text == "one.example" && (e.Revision() != 7 || e.match(0).Line != 7) {
				t.Errorf("%s: a verdict names %d, want the revision", when, e.match(0).Line)
			}
		}
	}
	// A reading that was cut off is known as such.
	at.Reading = true
	testkit.Value(set.Take(nil, at, false))(t)
	set.Close()
	testkit.Equal(t, "Cursor()", open().Cursor(), at)
}

// Rows that another program has written, and that this one cannot read, are left out one by one.
func TestRowsThatCannotBeRead(t *testing.T) {
	set := open(t, Settings{Folder: filepath.Join(t.TempDir(), "live")})
	good := Row{Entry: "one.example", Scope: "tree", Action: "block", Rev: 1}
	rows := []Row{good}
	for _, change := range []func(*Row){
		func(r *Row) { r.Entry = "" }, func(r *Row) { r.Entry = "One.Example" }, func(r *Row) { r.Scope = "exact" }, func(r *Row) { r.Action = "discard" },
		func(r *Row) { r.Why = "two\nlines" }, func(r *Row) { r.Owner = "@" }, func(r *Row) { r.Created = -1 }, func(r *Row) { r.Expires = 1 << 60 }, func(r *Row) { r.Proof = true },
	} {
		r := good
		r.Rev = uint64(len(rows) + 1)
		change(&r)
		rows = append(rows, r)
	}
	taken := testkit.Value(set.Take(rows, Cursor{Origin: "o", Revision: 99}, false))(t)
	testkit.Equal(t, "Take(): unread and entries", [...]int{len(taken.Left), set.Len()}, [...]int{len(rows) - 1, 1})
}

// What the fleet has beyond the most entries is left out; what is there already may change and go, and makes room.
func TestTakeIsBounded(t *testing.T) {
	set := open(t, Settings{Folder: filepath.Join(t.TempDir(), "live")})
	set.held.Add(MaxEntries - 1) // as if there were others
	row := func(entry string, rev uint64) Row {
		return Row{Entry: entry, Scope: "tree", Action: "block", Rev: rev}
	}
	take := func(rows ...Row) []Left {
		t.Helper()
		taken := testkit.Value(set.Take(rows, Cursor{Origin: "o", Revision: rows[len(rows)-1].Rev}, false))(t)
		return taken.Left
	}
	if left := take(row("one.example", 1), row("two.example", 2)); len(left) != 1 || left[0].Row != 1 || !errors.Is(left[0].Err, ErrFull) {
		t.Errorf("one too many: %v", left)
	}
	gone := row("one.example", 4)
	gone.Gone = 1
	if left := take(row("one.example", 3), gone, row("three.example", 5)); len(left) != 0 {
		t.Errorf("a change, a removal and one that takes its place: %v", left)
	}
	testkit.Equal(t, "Len", set.Len(), MaxEntries)
}

// A change that is made on this machine alone has one line in the audit journal, and a second one only if it was not made after all.
func TestAChangeAloneIsNotedOnce(t *testing.T) {
	set, _, said := journalled(t)
	set.SetShare(func(context.Context, []Want, Terms) ([]Given, error) { return nil, ErrAlone })
	apply(t, set, Change{Entry: "bad.example", Author: "anna"}, Change{Entry: "other.example", Author: "anna"})
	stale := uint64(4711)
	if _, err := set.Apply(Change{Entry: "stale.example", Author: "anna", IfRev: &stale}); err == nil {
		t.Fatal("a change of another revision was made")
	}
	var got []string
	for _, line := range said() {
		parts := strings.Split(line, "|")
		got = append(got, parts[1]+" "+parts[2])
	}
	want := []string{"entry.add block bad.example", "entry.add block other.example", "entry.add block stale.example", "failed block stale.example"}
	testkit.EqualSlices(t, "the journal has", got, want)
}
