// Package writers changes a table at random, from many connections, while a copy follows it. Tests of drivers use it.
package writers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
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
	*mirrortest.Copy
	served []uint64 // the sums of the states, in order
	Full   int      // how often everything was read
	Errors int
}

// Follow makes a copy in a folder of its own.
func Follow(t testing.TB, source mirror.Source) *Follower {
	t.Helper()
	return &Follower{Copy: mirrortest.NewCopy(t, source, lists.Settings{})}
}

// Poll brings the copy up to date, and notes what it serves. It reports an error of the source.
func (f *Follower) Poll(t testing.TB, ctx context.Context) error {
	t.Helper()
	_, err := f.Mirror.Follow(ctx, f.Source)
	if errors.Is(err, mirror.ErrTooOld) {
		f.Full++
		_, err = f.Mirror.Read(ctx, f.Source)
	}
	if _, classed := errors.AsType[*mirror.Error](err); err != nil && !classed && ctx.Err() == nil {
		t.Fatalf("an error without a class: %v", err)
	}
	if err != nil {
		f.Errors++
	}
	if _, has := f.State(); has {
		f.served = append(f.served, f.sum(t))
	}
	return err
}

// sum is of the lines that the copy serves, whatever their order.
func (f *Follower) sum(t testing.TB) (sum uint64) {
	t.Helper()
	for _, line := range f.Lines(t) {
		sum += xxh3.HashString(strings.TrimSpace(dropID(line)))
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
	f.CheckStates(t, states(t, db))
}

// CheckStates is Check for the sums of all states that the list ever had, in their order.
func (f *Follower) CheckStates(t testing.TB, states []uint64) {
	t.Helper()
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

// Sums are the sums of the states that a list had, change by change. Rows that say the same are one line of a copy.
type Sums struct {
	lines map[string]string // of each row
	count map[string]int    // how many rows have a line
	sum   uint64
}

// Set gives a row another content; without an entry it is gone.
func (s *Sums) Set(t testing.TB, id string, row mirror.Row) {
	t.Helper()
	if s.lines == nil {
		s.lines, s.count = map[string]string{}, map[string]int{}
	}
	if old, there := s.lines[id]; there {
		if s.count[old]--; s.count[old] == 0 {
			s.sum -= xxh3.HashString(old)
		}
		delete(s.lines, id)
	}
	if row.Entry == "" {
		return
	}
	line, refused := mirror.Say(row, lists.Settings{})
	if refused != nil {
		t.Fatal(refused.Message)
	}
	line = strings.TrimSpace(dropID(line))
	s.lines[id] = line
	if s.count[line]++; s.count[line] == 1 {
		s.sum += xxh3.HashString(line)
	}
}

// Now is the sum of the list as it is.
func (s *Sums) Now() uint64 { return s.sum }

// states are the sums of all that the table ever held, after each transaction.
func states(t testing.TB, db *sql.DB) (all []uint64) {
	t.Helper()
	rows, err := db.Query("select first, id, address, action from history order by n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var table Sums
	last := int64(0)
	for rows.Next() {
		var first int64
		var id string
		var address, action sql.NullString
		if err := rows.Scan(&first, &id, &address, &action); err != nil {
			t.Fatal(err)
		}
		if first != last {
			all, last = append(all, table.Now()), first
		}
		table.Set(t, id, mirror.Row{Entry: address.String, Action: action.String})
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return append(all, table.Now())
}
