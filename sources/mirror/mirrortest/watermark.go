package mirrortest

import (
	"testing"

	"blockd/sources/mirror"
)

// WatermarkQuery gives the rows of a table whose column touched is a watermark.
const WatermarkQuery = "select id, address as entry, gone as deleted, touched from senders -- all"

// Watermark follows an empty table senders (id, address, gone, touched) by its watermark, with an overlap of a minute.
// do executes a statement; first and second are values of touched in the past, 100 seconds apart, now and future what
// their names say.
func Watermark(t *testing.T, s mirror.Source, do func(sql string), first, second, now, future string) {
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
	// A row from the future hides no later change, and one without a time is seen as well.
	mark = WantRows(t, s, mirror.Row{Entry: "b@bulk.example", ID: "2"})
	_, mark = Changes(t, s, mark)
	do("insert into senders values (3, 'future@bulk.example', 0, " + future + ")")
	mark = WantChanges(t, s, mark, "future@bulk.example ")
	do("insert into senders values (4, 'now@bulk.example', 0, " + now + "), (5, 'never@bulk.example', 0, null)")
	mark = WantChanges(t, s, mark, "never@bulk.example ", "now@bulk.example ")
	do("update senders set gone = 1 where id in (4, 5)")
	mark = WantChanges(t, s, mark, "never@bulk.example", "now@bulk.example")
	mark = WantChanges(t, s, mark)
	do("update senders set touched = null")
	WantChanges(t, s, mark, "a@bulk.example", "b@bulk.example ", "future@bulk.example ", "now@bulk.example")
}
