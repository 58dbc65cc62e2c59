package mirrortest

import (
	"errors"
	"fmt"
	"strings"
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
	nothing := WantRows(t, s)
	if mark := WantChanges(t, s, nothing); mark != nothing {
		t.Errorf("the mark after nothing is %q, and was %q", mark, nothing)
	}
	do("insert into senders values (1, 'a@bulk.example', 0, " + first + "), (2, 'b@bulk.example', 1, " + first + ")")
	if _, err := s.Changes(t.Context(), nothing, Ignore); err != nil && !errors.Is(err, mirror.ErrTooOld) {
		t.Errorf("the first row: %v", err)
	}
	mark := WantRows(t, s, mirror.Row{Entry: "a@bulk.example", ID: "1"})
	missed := mark
	WantChanges(t, s, missed, "a@bulk.example ", "b@bulk.example") // within the overlap
	WantChanges(t, s, missed, "a@bulk.example ", "b@bulk.example") // whoever did not take them in has them once more
	mark = WantChanges(t, s, missed, "a@bulk.example ", "b@bulk.example")
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

// Wide fills an empty table of Watermark with more rows without a watermark than a poll reads again. At each poll they
// are there again, so that the source says why it is read whole each time.
func Wide(t *testing.T, s mirror.Source, do func(sql string)) {
	t.Helper()
	do("insert into senders values (0, 'a@bulk.example', 0, null)")
	for i := range 18 {
		do(fmt.Sprintf("insert into senders select id + %d, address, gone, touched from senders", 1<<i))
	}
	mark, err := s.All(t.Context(), Skip)
	if err == nil {
		_, err = s.Changes(t.Context(), mark, Ignore)
	}
	if u, ok := errors.AsType[*mirror.Unlogged](err); !ok || !strings.Contains(u.Error(), "too many rows have no touched") || !strings.Contains(u.Error(), "hint: ") {
		t.Errorf("more rows without a watermark than a poll reads: %v", err)
	}
}
