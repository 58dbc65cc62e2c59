package live

import (
	"errors"
	"path/filepath"
	"testing"
)

// What the fleet has beyond the most entries is left out; what is there already may change and go, and makes room.
func TestTakeIsBounded(t *testing.T) {
	set, err := Open(Settings{Folder: filepath.Join(t.TempDir(), "live")})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	set.held.Add(MaxEntries - 1) // as if there were others
	row := func(entry string, rev uint64) Row {
		return Row{Entry: entry, Scope: "tree", Action: "block", Rev: rev}
	}
	take := func(rows ...Row) []Left {
		t.Helper()
		taken, err := set.Take(rows, Cursor{Origin: "o", Revision: rows[len(rows)-1].Rev}, false)
		if err != nil {
			t.Fatal(err)
		}
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
	if set.Len() != MaxEntries {
		t.Errorf("Len() = %d", set.Len())
	}
}
