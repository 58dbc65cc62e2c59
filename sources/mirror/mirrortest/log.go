package mirrortest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"blockd/lists"
	"blockd/sources/mirror"
)

// Log follows an empty table senders (id, address, action, expires, why) by a log, which bare lacks and open makes. do
// executes a statement.
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
	WantLost(t, "the log was cleaned", s, mark, "it was cleaned before they were read")
	_, at, _ := strings.Cut(string(next), " ")
	WantLost(t, "the log's numbers have gone back", s, mirror.Mark("1000000 "+at), "and 1000000 was read: it was reset, restored from a backup, or has lost its end in a failover")
	number, _, _ := strings.Cut(string(next), " ")
	WantLost(t, "the number of another change", s, mirror.Mark(number+" 2001-02-03 04:05:06"), "change "+number+" of blockd_log is another one than was read")
	WantLost(t, "a mark that is none", s, "x", "the mark is of another source")
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
	WantLost(t, "more than waits in memory", s, mark, "their rows have more than 4 MiB")
	if found, _ := Rows(t, s); len(found) != 2+9 {
		t.Errorf("%d rows", len(found))
	}
}

// Unseen is a way in which a table can change without a line in its log.
type Unseen struct {
	What     string
	Changes  []string // statements, after which the table holds Want; each is one of an owner of the table
	Want     []string // lines as Copy.Want has them
	Unlogged bool     // from then on triggers are missing, and the source says so until Mended
}

// Seen checks that the changes act at the next poll, and that a source whose triggers are not all there says so from
// then on.
func (u Unseen) Seen(t testing.TB, s mirror.Source, do func(sql string), mend func()) {
	t.Helper()
	c := NewCopy(t, s, lists.Settings{})
	c.Read(t)
	c.Follow(t)
	for _, sql := range u.Changes {
		do(sql)
	}
	_, err := c.Mirror.Follow(t.Context(), c.Source)
	if _, unlogged := errors.AsType[*mirror.Unlogged](err); !errors.Is(err, mirror.ErrTooOld) && err != nil || unlogged != u.Unlogged {
		t.Errorf("%s: %v, want an error of triggers: %v", u.What, err, u.Unlogged)
	} else if unlogged && !strings.Contains(err.Error(), "hint: ") {
		t.Errorf("%s: %v names no command", u.What, err)
	}
	c.Update(t)
	c.Want(t, u.What, u.Want...)
	if !u.Unlogged {
		return
	}
	mend()
	if _, err := c.Mirror.Follow(t.Context(), c.Source); !errors.Is(err, mirror.ErrTooOld) { // it was blind up to now
		t.Errorf("%s, mended: %v, want a full read", u.What, err)
	}
	c.Read(t)
	c.Follow(t)
}
