package live

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

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
	taken, err := set.Take(rows, at, false)
	if err != nil || len(taken.Outcomes) != 4 || len(taken.Left) != 0 {
		t.Fatalf("Take() = %+v, %v", taken, err)
	}
	rows[3].Gone, rows[3].Rev = 1_790_000_001, 20
	at.Revision = 20
	testkit.Value(set.Take(rows[3:], at, false))(t)
	if _, err := set.Apply(Change{Entry: "own.example"}); err != nil { // of this machine alone
		t.Fatal(err)
	}
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
	taken, err := set.Take(rows, Cursor{Origin: "o", Revision: 99}, false)
	if err != nil || len(taken.Left) != len(rows)-1 || set.Len() != 1 {
		t.Errorf("Take() = %d unread of %d, %v; %d entries", len(taken.Left), len(rows)-1, err, set.Len())
	}
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
