package writers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
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
	open := func() (*mirror.Mirror, string) {
		folder := filepath.Join(t.TempDir(), "copy")
		m, err := mirror.Open(mirror.Options{Folder: folder, Settings: settings})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m, folder
	}
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
	followed, folder := open()
	if _, err := followed.Read(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	for round := range 40 {
		for range 1 + rng.IntN(8) {
			change()
		}
		if round%7 == 3 {
			followed.Close()
			var err error
			if followed, err = mirror.Open(mirror.Options{Folder: folder, Settings: settings}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { followed.Close() })
		}
		if _, err := followed.Follow(t.Context(), source); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		whole, other := open()
		if _, err := whole.Read(t.Context(), source); err != nil && !errors.Is(err, mirror.ErrTooOld) {
			t.Fatal(err)
		}
		whole.Close()
		if got, want := entriesIn(t, folder), entriesIn(t, other); !slices.Equal(got, want) {
			t.Fatalf("round %d: the copy that follows has %q, the source %q", round, got, want)
		}
	}
	if len(entriesIn(t, folder)) < 10 {
		t.Error("there is next to nothing in the table")
	}
}

// entriesIn are the lines of a copy, sorted and without the ids of rows.
func entriesIn(t *testing.T, folder string) (all []string) {
	t.Helper()
	paths, err := filepath.Glob(mirror.Files(folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		for line := range strings.Lines(string(testkit.Read(t, path))) {
			if !strings.HasPrefix(line, "#") {
				all = append(all, dropID(strings.TrimSuffix(line, "\n")))
			}
		}
	}
	slices.Sort(all)
	return all
}
