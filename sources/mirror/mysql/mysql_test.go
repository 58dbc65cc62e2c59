package mysql

import (
	"cmp"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/mariadbserver"
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
	if _, err := s.DB.Exec(text); err != nil {
		t.Fatal(err)
	}
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
	s, err := Open(o)
	testkit.Must(t, err)
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
