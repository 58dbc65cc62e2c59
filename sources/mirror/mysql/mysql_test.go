package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"

	client "github.com/go-sql-driver/mysql"

	"blockd/internal/testkit"
	"blockd/internal/testkit/mariadbserver"
	"blockd/internal/testkit/writers"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

var _ mirror.Source = (*Source)(nil)

const table = "create table senders (id int primary key, address varchar(200), action varchar(10), expires datetime, why mediumtext) engine = InnoDB default charset utf8mb4;"

const rows = "select id, address as entry, action, expires, why as reason from senders"

// TestServer runs the tests of one server, which each have a database of their own.
func TestServer(t *testing.T) {
	server := mariadbserver.Start(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, *database)
	}{
		{"rows and log", testRowsAndLog},
		{"order of commits", testOrderOfCommits},
		{"classes", testClasses},
		{"words", testWords},
		{"other table", testOtherTable},
		{"large rows", testLargeRows},
		{"watermark", testWatermark},
		{"killed", testKilled},
		{"hung", testHung},
		{"TLS", testTLS},
		{"rubbish", testRubbish},
		{"driver", testDriver},
		{"follows", testFollows},
		{"follows owners", testFollowsOwners},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, newDatabase(t, server)) })
	}
}

// database is a database that a test writes to.
type database struct {
	*mariadbserver.Server
	name string
}

const password = "p/w#9?@secret"

func newDatabase(t *testing.T, s *mariadbserver.Server) *database {
	d := &database{s, strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, t.Name())}
	text := strings.NewReplacer("NAME", d.name, "PASSWORD", password).Replace("create database NAME; create user if not exists reader identified by 'PASSWORD'; grant select on NAME.* to reader; use NAME; ") + table
	testkit.Value(s.DB.Exec(text))(t)
	return d
}

func (d *database) do(t testing.TB, text string, args ...any) {
	t.Helper()
	if _, err := d.DB.Exec("use "+d.name+";"+text, args...); err != nil {
		t.Fatalf("%.200s: %v", text, err)
	}
}

// source opens the database as a list does; with a log it has what the source asks for.
func (d *database) source(t testing.TB, o Options) *Source {
	t.Helper()
	s := d.bare(t, o)
	if o.Changes == "log" {
		client := exec.Command(testkit.Peer(t, "mariadb"), "--no-defaults", "--socket="+d.Socket, "--user=root", d.name)
		client.Stdin = strings.NewReader(s.DDL())
		if out, err := client.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return s
}

// bare opens the database, which stays as it is.
func (d *database) bare(t testing.TB, o Options) *Source {
	t.Helper()
	o.DSN, o.List = cmp.Or(o.DSN, d.URL("reader", password, d.name)), "abuse-desk"
	o.Query = cmp.Or(o.Query, rows)
	s := testkit.Value(Open(o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func testDriver(t *testing.T, d *database) {
	d.source(t, Options{Changes: "log"})
	id := 0
	mirrortest.Run(t, mirrortest.Driver{
		Open: func(t testing.TB) mirror.Source { return d.bare(t, Options{Changes: "log"}) },
		Put: func(t testing.TB, entry, action string) {
			id++
			d.do(t, fmt.Sprintf("delete from senders where address = '%[1]s'; insert into senders (id, address, action) values (%[3]d, '%[1]s', '%[2]s')", entry, action, id))
		},
		Remove: func(t testing.TB, entry string) { d.do(t, "delete from senders where address = '"+entry+"'") },
		Asked:  d.asked(),
	})
}

// asked counts the statements of the server, without those that count.
func (d *database) asked() func(testing.TB) int {
	own := 0
	return func(t testing.TB) (n int) {
		t.Helper()
		var name string
		testkit.Must(t, d.DB.QueryRow("show global status like 'Questions'").Scan(&name, &n))
		own++
		return n - own
	}
}

func testRowsAndLog(t *testing.T, d *database) {
	mirrortest.WantFaultOf(t, d.bare(t, Options{Changes: "log"}), mirror.ClassSchema, "hint: blockd source ddl abuse-desk prints what a log needs")
	d.do(t, "insert into senders values (1, 'ann@b.example', 'block', '2030-01-01 00:00:00', 'why'), (2, 'c.example', null, null, null), (3, 'bücher.example', null, '2030-01-01', null)")
	s := d.source(t, Options{Changes: "log"})
	mark := mirrortest.WantRows(t, s, mirror.Row{Entry: "ann@b.example", Action: "block", Expires: 1893456000, Reason: "why", ID: "1"},
		mirror.Row{Entry: "c.example", ID: "2"}, mirror.Row{Entry: "bücher.example", Expires: 1893456000, ID: "3"})
	d.do(t, "update senders set address = 'Ann2@b.example' where id = 1; delete from senders where id = 2; update senders set why = 'x' where id = 3")
	next := mirrortest.WantChanges(t, s, mark, "Ann2@b.example block", "ann@b.example", "bücher.example ", "c.example")
	d.do(t, "delete from blockd_log where rev <= 2")
	mirrortest.WantTooOld(t, "the log was cleaned", s, mark)
	d.do(t, "delete from blockd_log")
	mirrortest.WantChanges(t, s, next) // it was cleaned up to where we are
	if plan, err := s.Plan(t.Context()); err != nil || !strings.Contains(plan, "changes: blockd_log, last number 5") || strings.Contains(plan, "secret") {
		t.Errorf("%v: %s", err, plan)
	}
}

const lastNumber = "select rev from blockd_log_rev"

var soak = flag.Bool("soak", false, "follow writers for long")

// connections are connections of root to the database.
func (d *database) connections(t testing.TB) *sql.DB {
	t.Helper()
	c := client.NewConfig()
	c.User, c.Net, c.Addr, c.DBName, c.Logger, c.InterpolateParams = "root", "unix", d.Socket, d.name, &client.NopLogger{}, true
	connector := testkit.Value(client.NewConnector(c))(t)
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
	first := testkit.Value(db.Begin())(t)
	testkit.Value(first.Exec("insert into senders (id, address) values (1, 'first@bulk.example')"))(t)
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
