// Package writers changes a table at random, from many connections, while a copy follows it. Tests of drivers use it.
package writers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
)

// Tables are the tables of a list, and of all that was done to it. A change and its line in the history are one transaction.
const Tables = `create table senders (id int primary key, address varchar(200), action varchar(10));
create table history (n bigint primary key, first bigint not null, id int not null, address varchar(200), action varchar(10))`

// Query gives the rows of the list.
const Query = "select id, address as entry, action from senders"

// Change makes one transaction of one to three changes. number is the SQL for the number of the last change in the log.
func Change(ctx context.Context, db *sql.DB, rng *rand.Rand, number string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	first := int64(0)
	for range 1 + rng.IntN(3) {
		id, address, action := rng.IntN(200), sql.NullString{}, []string{"block", "allow", "tempfail"}[rng.IntN(3)]
		var there int
		if err := tx.QueryRowContext(ctx, "select count(*) from senders where id = ?", id).Scan(&there); err != nil {
			return err
		}
		if there == 0 || rng.IntN(3) > 0 {
			address = sql.NullString{String: fmt.Sprintf("user%d@bulk.example", rng.IntN(300)), Valid: true}
		}
		switch {
		case there == 0:
			_, err = tx.ExecContext(ctx, "insert into senders values (?, ?, ?)", id, address, action)
		case address.Valid:
			_, err = tx.ExecContext(ctx, "update senders set address = ?, action = ? where id = ?", address, action, id)
		default:
			_, err = tx.ExecContext(ctx, "delete from senders where id = ?", id)
		}
		if err != nil {
			return err
		}
		var n int64 // from us: no other transaction is given one before we commit
		if err := tx.QueryRowContext(ctx, number).Scan(&n); err != nil {
			return err
		}
		if first == 0 {
			first = n
		}
		if _, err := tx.ExecContext(ctx, "insert into history values (?, ?, ?, ?, ?)", n, first, id, address, action); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Follower is a copy of the list, with what it has served.
type Follower struct {
	folder string
	source mirror.Source
	copy   *mirror.Mirror
	served []uint64 // the sums of the states, in order
	Full   int      // how often everything was read
	Errors int
}

// Follow makes a copy in a folder of its own.
func Follow(t testing.TB, source mirror.Source) *Follower {
	f := &Follower{folder: filepath.Join(t.TempDir(), "copy"), source: source}
	f.open(t)
	t.Cleanup(func() { f.copy.Close() })
	return f
}

func (f *Follower) open(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, "the lock of the copy", func() (ok bool) { // a process that is being started has it for a moment
		m, err := mirror.Open(mirror.Options{Folder: f.folder})
		if err != nil && !errors.Is(err, mirror.ErrLocked) {
			t.Fatal(err)
		}
		f.copy = m
		return err == nil
	})
}

// Restart closes the copy and opens it again.
func (f *Follower) Restart(t testing.TB) {
	t.Helper()
	f.copy.Close()
	f.open(t)
}

// Poll brings the copy up to date, and notes what it serves. It reports an error of the source.
func (f *Follower) Poll(t testing.TB, ctx context.Context) error {
	t.Helper()
	_, err := f.copy.Follow(ctx, f.source)
	if errors.Is(err, mirror.ErrTooOld) {
		f.Full++
		_, err = f.copy.Read(ctx, f.source)
	}
	if _, classed := errors.AsType[*mirror.Error](err); err != nil && !classed && ctx.Err() == nil {
		t.Fatalf("an error without a class: %v", err)
	}
	if err != nil {
		f.Errors++
	}
	if _, has := f.copy.State(); has {
		f.served = append(f.served, f.sum(t))
	}
	return err
}

// sum is of the lines that the copy serves, whatever their order.
func (f *Follower) sum(t testing.TB) (sum uint64) {
	t.Helper()
	paths, err := filepath.Glob(mirror.Files(f.folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		for line := range strings.Lines(string(testkit.Read(t, path))) {
			if !strings.HasPrefix(line, "#") {
				sum += xxh3.HashString(strings.TrimSpace(dropID(line)))
			}
		}
	}
	return sum
}

// dropID takes the row's id from a line: of two rows that say the same the copy keeps one.
func dropID(line string) string {
	fields := strings.Split(line, "\t")
	fields[4] = ""
	return strings.Join(fields, "\t")
}

// Check polls until the copy is what the table holds, and then checks that all that was served were states of the table, after a
// transaction each, in their order.
func (f *Follower) Check(t testing.TB, db *sql.DB) {
	t.Helper()
	states := states(t, db)
	testkit.Eventually(t, "the last state", func() bool {
		return f.Poll(t, t.Context()) == nil && f.served[len(f.served)-1] == states[len(states)-1]
	})
	at := 0
	for i, sum := range f.served {
		for at < len(states) && states[at] != sum {
			at++
		}
		if at == len(states) {
			t.Fatalf("state %d of %d that were served was none of the table's, or an older one", i, len(f.served))
		}
	}
	t.Logf("%d transactions; %d states served; %d full reads; %d errors", len(states)-1, len(f.served), f.Full, f.Errors)
}

// states are the sums of all that the table ever held, after each transaction.
func states(t testing.TB, db *sql.DB) (all []uint64) {
	t.Helper()
	rows, err := db.Query("select first, id, address, action from history order by n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	lines, count := map[int]string{}, map[string]int{} // of each id; how many rows have a line
	sum := uint64(0)
	last := int64(0)
	for rows.Next() {
		var first int64
		var id int
		var address, action sql.NullString
		if err := rows.Scan(&first, &id, &address, &action); err != nil {
			t.Fatal(err)
		}
		if first != last {
			all, last = append(all, sum), first
		}
		if old, there := lines[id]; there {
			if count[old]--; count[old] == 0 {
				sum -= xxh3.HashString(old)
			}
			delete(lines, id)
		}
		if address.Valid {
			line, refused := mirror.Say(mirror.Row{Entry: address.String, Action: action.String}, lists.Settings{})
			if refused != nil {
				t.Fatal(refused.Message)
			}
			line = strings.TrimSpace(line)
			lines[id] = line
			if count[line]++; count[line] == 1 {
				sum += xxh3.HashString(line)
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return append(all, sum)
}
