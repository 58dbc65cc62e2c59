package mirrortest

import (
	"testing"

	"blockd/sources/mirror"
)

// WatermarkQuery gives the rows of a table whose column touched is a watermark.
const WatermarkQuery = "select id, address as entry, gone as deleted, touched from senders -- all"

// Watermark follows an empty table senders (id, address, gone, touched) by its watermark, with an overlap of a minute. do
// executes a statement; first and second are values of touched, 100 seconds apart.
func Watermark(t *testing.T, s mirror.Source, do func(sql string), first, second string) {
	t.Helper()
	if mark := WantRows(t, s); mark != "" {
		t.Errorf("the mark of nothing is %q", mark)
	}
	if mark := WantChanges(t, s, ""); mark != "" {
		t.Errorf("the mark after nothing is %q", mark)
	}
	do("insert into senders values (1, 'a@bulk.example', 0, " + first + "), (2, 'b@bulk.example', 1, " + first + ")")
	WantTooOld(t, "the first row", s, "")
	mark := WantRows(t, s, mirror.Row{Entry: "a@bulk.example", ID: "1"})
	WantChanges(t, s, mark, "a@bulk.example ", "b@bulk.example") // within the overlap
	if again := WantChanges(t, s, mark); again != mark {
		t.Errorf("the same once more has the mark %q, not %q", again, mark)
	}
	do("update senders set gone = 1 - gone, touched = " + second)
	if next := WantChanges(t, s, mark, "a@bulk.example", "b@bulk.example "); next == mark {
		t.Error("a change leaves the mark as it was")
	}
}
