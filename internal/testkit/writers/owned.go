package writers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"blockd/lists"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

// OwnedTable is a table of entries with owners.
const OwnedTable = "create table owned (id int primary key, mailbox varchar(200), address varchar(200), action varchar(10), changed bigint not null, deleted int not null default 0)"

// OwnedQuery gives its rows. With a watermark, which is the column changed, deleted rows stay.
const OwnedQuery = "select id, mailbox as owner, address as entry, action from owned"

// OwnedWatermark is OwnedQuery for a source that goes by a watermark.
const OwnedWatermark = "select id, mailbox as owner, address as entry, action, changed, deleted from owned"

// FollowOwned changes the table at random, a statement at a time, and holds a copy that follows the source against one that is
// read as a whole. Nothing is read as a whole but at the beginning.
func FollowOwned(t *testing.T, source mirror.Source, watermark bool, do func(sql string)) {
	t.Helper()
	settings := lists.Settings{PerRecipient: true}
	rng := rand.New(rand.NewPCG(20, 20))
	text := func(format string, n int) string {
		if n == 0 {
			return "null"
		}
		return "'" + fmt.Sprintf(format, n) + "'"
	}
	clock := 0
	change := func() {
		id, owner, entry := rng.IntN(60), text("user%d@here.example", rng.IntN(6)), text("bulk%d.example", rng.IntN(9))
		action := []string{"'block'", "'allow'", "null"}[rng.IntN(3)]
		clock++
		switch rng.IntN(6) {
		case 0:
			if watermark {
				do(fmt.Sprintf("update owned set deleted = 1, changed = %d where id = %d", clock, id))
			} else {
				do(fmt.Sprintf("delete from owned where id = %d", id))
			}
		case 1: // many rows, and another owner
			if watermark {
				return // where the entry of a row becomes another one, a watermark does not tell of the first
			}
			do(fmt.Sprintf("update owned set mailbox = %s, changed = %d where id > %d and id < %d", owner, clock, id, id+9))
		case 2:
			do(fmt.Sprintf("update owned set action = %s, changed = %d where mailbox = %s", action, clock, owner))
		default:
			if !watermark {
				do(fmt.Sprintf("delete from owned where id = %d", id))
			} else {
				id = 100 + clock
			}
			do(fmt.Sprintf("insert into owned (id, mailbox, address, action, changed) values (%d, %s, %s, %s, %d)", id, owner, entry, action, clock))
		}
	}
	do("insert into owned (id, mailbox, address, action, changed) values (1, 'user1@here.example', 'bulk1.example', 'block', 0)")
	followed := mirrortest.NewCopy(t, source, settings)
	followed.Read(t)
	for round := range 40 {
		for range 1 + rng.IntN(8) {
			change()
		}
		if round%7 == 3 {
			followed.Restart(t)
		}
		followed.Follow(t)
		whole := mirrortest.NewCopy(t, source, settings)
		whole.Read(t)
		whole.Close()
		if got, want := entriesIn(t, followed), entriesIn(t, whole); !slices.Equal(got, want) {
			t.Fatalf("round %d: the copy that follows has %q, the source %q", round, got, want)
		}
	}
	if len(entriesIn(t, followed)) < 10 {
		t.Error("there is next to nothing in the table")
	}
}

// entriesIn are the lines of a copy, sorted and without the ids of rows.
func entriesIn(t *testing.T, c *mirrortest.Copy) []string {
	t.Helper()
	all := c.Lines(t)
	for i, line := range all {
		all[i] = dropID(line)
	}
	slices.Sort(all)
	return all
}
