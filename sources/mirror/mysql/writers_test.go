package mysql

import (
	"context"
	"database/sql"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"

	client "github.com/go-sql-driver/mysql"

	"blockd/internal/testkit"
	"blockd/internal/testkit/writers"
	"blockd/sources/mirror/mirrortest"
)

const lastNumber = "select rev from blockd_log_rev"

var soak = flag.Bool("soak", false, "follow writers for long")

// connections are connections of root to the database.
func (d *database) connections(t testing.TB) *sql.DB {
	t.Helper()
	c := client.NewConfig()
	c.User, c.Net, c.Addr, c.DBName, c.Logger, c.InterpolateParams = "root", "unix", d.Socket, d.name, &client.NopLogger{}, true
	connector, err := client.NewConnector(c)
	testkit.Must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

// testFollows lets eight connections write at random, and kills the server, reads and connections at any moment. What the copy serves
// are states that the table had after a transaction, in their order, and in the end the last one.
func testFollows(t *testing.T, d *database) {
	polls := 20
	if *soak {
		polls = 2000
	}
	d.do(t, "drop table senders; "+writers.Tables)
	source := d.source(t, Options{Changes: "log", Query: writers.Query})
	copied := writers.Follow(t, source)
	db := d.connections(t)
	orders := make(chan struct{}, 1000)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(50, uint64(i)))
			for range orders {
				_ = writers.Change(t.Context(), db, rng, lastNumber) // some are victims of deadlocks, and of what we kill
			}
		})
	}
	rng := rand.New(rand.NewPCG(50, 50))
	for i := range polls {
		for range rng.IntN(120) {
			orders <- struct{}{} // while we read
		}
		ctx, cancel := context.WithCancel(t.Context())
		switch rng.IntN(5) {
		case 0:
			copied.Restart(t)
		case 1:
			go cancel()
		case 2:
			go d.DB.Exec("begin not atomic declare victim bigint; select max(id) into victim from information_schema.processlist where user = 'reader'; if victim is not null then kill victim; end if; end")
		}
		if i%10 == 5 {
			d.Kill()
			_ = copied.Poll(t, ctx)
			d.Run(t)
		}
		_ = copied.Poll(t, ctx)
		cancel()
	}
	close(orders)
	all.Wait()
	copied.Check(t, db)
}

// testOrderOfCommits commits two transactions in another order than they began to write. The second one waits for the first, so that
// numbers have the order of the commits.
func testOrderOfCommits(t *testing.T, d *database) {
	source := d.source(t, Options{Changes: "log"})
	_, mark := mirrortest.Rows(t, source)
	db := d.connections(t)
	first, err := db.Begin()
	testkit.Must(t, err)
	if _, err := first.Exec("insert into senders (id, address) values (1, 'first@bulk.example')"); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		_, err := db.Exec("insert into senders (id, address) values (2, 'second@bulk.example')")
		second <- err
	}()
	testkit.Eventually(t, "the second to wait for the first", func() (waits bool) {
		err := db.QueryRow("select variable_value > 0 from information_schema.global_status where variable_name = 'Innodb_row_lock_current_waits'").Scan(&waits)
		return err == nil && waits
	})
	mark = mirrortest.WantChanges(t, source, mark) // before a commit
	testkit.Must(t, first.Commit())
	testkit.Must(t, <-second)
	mark = mirrortest.WantChanges(t, source, mark, "first@bulk.example ", "second@bulk.example ")
	// A transaction that is rolled back leaves no gap.
	d.do(t, "begin; delete from senders; rollback")
	mark = mirrortest.WantChanges(t, source, mark)
	d.do(t, "delete from senders where id = 1")
	mirrortest.WantChanges(t, source, mark, "first@bulk.example")
}

// testFollowsOwners: entries with owners are followed by the log as by a watermark.
func testFollowsOwners(t *testing.T, d *database) {
	for _, o := range []Options{
		{Changes: "log", Query: writers.OwnedQuery, PerRecipient: true},
		{Changes: "watermark", Watermark: "changed", Query: writers.OwnedWatermark, PerRecipient: true},
	} {
		d.do(t, "drop table if exists owned; "+writers.OwnedTable)
		writers.FollowOwned(t, d.source(t, o), o.Watermark != "", func(sql string) { d.do(t, sql) })
	}
}
