package mirrortest

import (
	"fmt"
	"strings"
	"testing"

	"blockd/sources/mirror"
)

// Log follows an empty table senders (id, address, action, expires, why) by a log, which bare lacks and open makes. do executes
// a statement.
func Log(t *testing.T, bare mirror.Source, open func() mirror.Source, do func(sql string)) {
	t.Helper()
	do("insert into senders values (1, 'ann@b.example', 'block', '2030-01-01 00:00:00', 'why'), (2, 'c.example', null, null, null), (3, 'b.example', null, '2030-01-01', null)")
	WantFaultOf(t, bare, mirror.ClassSchema, "hint: blockd source ddl abuse-desk prints what a log needs")
	s := open()
	mark := WantRows(t, s, mirror.Row{Entry: "ann@b.example", Action: "block", Expires: 1893456000, Reason: "why", ID: "1"},
		mirror.Row{Entry: "c.example", ID: "2"}, mirror.Row{Entry: "b.example", Expires: 1893456000, ID: "3"})
	do("update senders set address = 'Ann2@b.example' where id = 1")
	do("delete from senders where id = 2")
	do("update senders set why = 'x' where id = 3")
	next := WantChanges(t, s, mark, "Ann2@b.example block", "ann@b.example", "b.example ", "c.example")
	do("delete from blockd_log where rev <= 2")
	WantTooOld(t, "the log was cleaned", s, mark)
	do("delete from blockd_log")
	WantChanges(t, s, next) // it was cleaned up to where we are

	// Rows of a megabyte are read, but not many of them at once from the log.
	_, mark = Rows(t, s)
	large := func(id int) {
		do(fmt.Sprintf("insert into senders (id, address, why) values (%d, '%d@bulk.example', '%s')", id, id, strings.Repeat("x", 1_000_000)))
	}
	large(10)
	WantChanges(t, s, mark, "10@bulk.example ")
	for id := range 8 {
		large(11 + id)
	}
	WantTooOld(t, "more than waits in memory", s, mark)
	if found, _ := Rows(t, s); len(found) != 2+9 {
		t.Errorf("%d rows", len(found))
	}
}
