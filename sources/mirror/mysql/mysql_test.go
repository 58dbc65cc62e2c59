package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
		{"log", testLog},
		{"order of commits", testOrderOfCommits},
		{"classes", testClasses},
		{"words", testWords},
		{"other table", testOtherTable},
		{"watermark", testWatermark},
		{"killed", testKilled},
		{"hung", testHung},
		{"TLS", testTLS},
		{"rubbish", testRubbish},
		{"driver", testDriver},
		{"triggers fail nothing", testTriggersFailNothing},
		{"triggers wait in vain", testTriggersWaitInVain},
		{"unlogged", testUnlogged},
		{"character sets", testCharacterSets},
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
	testkit.Value(d.DB.Exec("use "+d.name+";"+text, args...))(t)
}

// source opens the database as a list does; with a log it has what the source asks for.
func (d *database) source(t testing.TB, o Options) *Source {
	t.Helper()
	s := d.bare(t, o)
	if o.Changes == "log" {
		client := exec.Command(testkit.Peer(t, "mariadb"), "--no-defaults", "--socket="+d.Socket, "--user=root", d.name)
		client.Stdin, client.Env = strings.NewReader(testkit.Value(s.DDL())(t)), []string{"LC_ALL=C"} // as cron has it
		if out, err := client.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		d.do(t, "grant execute on function blockd_triggers to reader; grant execute on function blockd_tables to reader")
	}
	return s
}

// bare opens the database, which stays as it is.
func (d *database) bare(t testing.TB, o Options) *Source {
	t.Helper()
	o.DSN, o.List = cmp.Or(o.DSN, d.URL("reader", password, d.name)), cmp.Or(o.List, "abuse-desk")
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

func testLog(t *testing.T, d *database) {
	var s *Source
	mirrortest.Log(t, d.bare(t, Options{Changes: "log"}), func() mirror.Source { s = d.source(t, Options{Changes: "log"}); return s }, func(sql string) { d.do(t, sql) })
	d.do(t, "update blockd_log_rev set rev = 77")
	if plan, err := s.Plan(t.Context()); err != nil || !strings.Contains(plan, "changes: blockd_log, last number 77") || strings.Contains(plan, "secret") {
		t.Errorf("%v: %s", err, plan)
	}
}

// testUnlogged changes a table in ways that no trigger tells of, or none that was there at first.
func testUnlogged(t *testing.T, d *database) {
	const aside = "create table loaded like senders; insert into loaded (id, address, action) values (2, 'b.example', 'block'); "
	const add = "insert into senders (id, address, action) values (2, 'b.example', 'block')"
	const parts = " partition by range (id) (partition low values less than (5), partition high values less than maxvalue)"
	ab, b := []string{"a.example b", "b.example b"}, []string{"b.example b"}
	for _, u := range []mirrortest.Unseen{
		{What: "a plain change", Changes: []string{add}, Want: ab},
		{What: "loaded aside and renamed", Changes: []string{aside + "rename table senders to former, loaded to senders"}, Want: b, Unlogged: true},
		{What: "loaded aside, the former one dropped", Changes: []string{aside + "drop table senders; rename table loaded to senders"}, Want: b, Unlogged: true},
		{What: "truncated at once, then filled", Changes: []string{"truncate senders; " + add}, Want: b},
		{What: "a trigger dropped", Changes: []string{"drop trigger blockd_abuse_desk_insert; " + add}, Want: ab, Unlogged: true},
		{What: "dropped and made again", Changes: []string{"drop trigger blockd_abuse_desk_delete; delete from senders; create trigger blockd_abuse_desk_delete after delete on senders for each row " +
			"insert into blockd_log (rev, list, entry, gone) select rev, 'abuse-desk', old.address, 1 from blockd_log_rev"}},
		{What: "a column rewritten", Changes: []string{"alter table senders modify address varchar(9) character set ascii; " + add}, Want: ab},
		{What: "a partition emptied", Changes: []string{"alter table senders" + parts, "alter table senders truncate partition low; " + add}, Want: b},
		{What: "a partition dropped", Changes: []string{"alter table senders" + parts, add, "alter table senders drop partition low"}},
		{What: "a foreign key that deletes", Changes: []string{"create table owners (id int primary key) engine = InnoDB; insert into owners values (1)",
			"alter table senders add foreign key (id) references owners (id) on delete cascade", "delete from owners"}, Unlogged: true},
		{What: "a foreign key that forgets", Changes: []string{"create table owners (id int primary key) engine = InnoDB; insert into owners values (1); alter table senders add mine int default 1",
			"alter table senders add foreign key (mine) references owners (id) on delete set null", "delete from owners"}, Want: ab[:1], Unlogged: true},
		{What: "a foreign key that renames", Changes: []string{"create table owners (id int primary key) engine = InnoDB; insert into owners values (1)",
			"alter table senders add foreign key (id) references owners (id) on update cascade", "update owners set id = 7"}, Want: ab[:1], Unlogged: true},
		{What: "a foreign key that does nothing", Changes: []string{"create table owners (id int primary key) engine = InnoDB; insert into owners values (1)",
			"alter table senders add foreign key (id) references owners (id) on delete restrict on update no action"}, Want: ab[:1]},
		{What: "the function fails", Changes: []string{"drop function blockd_triggers; create function blockd_triggers(a text, b text, c text) returns text begin if 1 then signal sqlstate '45000' set message_text = 'no'; end if; return ''; end; " +
			"grant execute on function blockd_triggers to reader; " + add}, Want: ab, Unlogged: true},
		{What: "the function gives nothing that is known", Changes: []string{"drop function blockd_triggers; create function blockd_triggers(a text) returns int return 1; " +
			"grant execute on function blockd_triggers to reader; " + add}, Want: ab, Unlogged: true},
		{What: "the right to the other function has gone", Changes: []string{"revoke execute on function blockd_tables from reader; " + add}, Want: ab},
		{What: "the function has gone", Changes: []string{"drop function blockd_triggers; " + add}, Want: ab, Unlogged: true},
		{What: "its right has gone", Changes: []string{"revoke execute on function blockd_triggers from reader; " + add}, Want: ab, Unlogged: true},
	} {
		d.do(t, "drop table if exists senders, loaded, former, blockd_log, blockd_log_rev, owners; drop function if exists blockd_triggers; drop function if exists blockd_tables; "+table+"insert into senders (id, address, action) values (1, 'a.example', 'block')")
		s := d.source(t, Options{Changes: "log"})
		u.Seen(t, s, func(sql string) { d.do(t, sql) }, func() {
			d.do(t, "drop trigger if exists blockd_abuse_desk_insert; drop trigger if exists blockd_abuse_desk_update; drop trigger if exists blockd_abuse_desk_delete; drop function if exists blockd_triggers; drop function if exists blockd_tables")
			d.do(t, "set foreign_key_checks = 0; drop table if exists former, owners; set foreign_key_checks = 1")
			if strings.Contains(u.What, "foreign") {
				d.do(t, "alter table senders drop foreign key senders_ibfk_1")
			}
			d.source(t, Options{Changes: "log"})
		})
	}
}

const lastNumber = "select rev from blockd_log_rev"

// testCharacterSets: what a database takes for the letters of its own functions does not matter to the log.
func testCharacterSets(t *testing.T, d *database) {
	for i, set := range []string{"latin1", "ascii", "utf8mb3 collate utf8mb3_general_ci", "utf8mb4 collate utf8mb4_unicode_ci", "ucs2"} {
		d.do(t, "drop function if exists blockd_triggers; drop function if exists blockd_tables; drop table if exists senders; alter database "+d.name+" character set "+set+"; "+table)
		s := d.source(t, Options{Changes: "log", List: fmt.Sprintf("Mißbrauch ж %d", i)})
		_, mark := mirrortest.Rows(t, s)
		d.do(t, "insert into senders (id, address) values (1, 'a@bulk.example')")
		mirrortest.WantChanges(t, s, mark, "a@bulk.example ")
		if print, err := s.Fingerprint(t.Context()); err != nil || !strings.Contains(print, " insert ") {
			t.Errorf("%s: %q, %v", set, print, err)
		}
	}
}

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

// testFollows lets eight connections write at random, and kills the server, reads and connections at any moment. What
// the copy serves are states that the table had after a transaction, in their order, and in the end the last one.
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

// testOrderOfCommits commits two transactions in another order than they began to write. The second one waits for the
// first, so that numbers have the order of the commits.
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

func TestDSN(t *testing.T) {
	for dsn, want := range map[string]string{
		"mysql://u:p%2Fsecret@db.example/mail":             "tcp db.example:3306 u mail tls",
		"mysql://u:secret@db.example:3307/mail?tls=false":  "tcp db.example:3307 u mail",
		"mysql://u:secret@db.example/mail?tls=skip-verify": "tcp db.example:3306 u mail tls",
		"mysql://u@127.0.0.1/mail":                         "tcp 127.0.0.1:3306 u mail",
		"mysql://u@127.0.0.1/mail?tls=true":                "tcp 127.0.0.1:3306 u mail tls",
		"mysql://u@[::1]:3308/mail":                        "tcp [::1]:3308 u mail",
		"mysql://u@localhost/mail":                         "tcp localhost:3306 u mail",
		"mysql://u@/mail?socket=/run/mysqld/mysqld.sock":   "unix /run/mysqld/mysqld.sock u mail",
		"mysql://u:sec/ret@db.example/mail":                "error",
		"mysql://u:sec%ret@db.example/mail":                "error",
		"mysql://u:secret@db.example/":                     "error",
		"mysql://db.example/mail":                          "error",
		"mysql://u:secret@/mail":                           "error",
		"mysql://u:secret@h/mail?socket=/s":                "error",
		"mysql://u:secret@h/mail?secret=1":                 "error",
		"mysql://u:secret@h/mail?tls=secret":               "error",
		"mysql://u:secret@h/mail?tls_ca=/none":             "error",
		"u:secret@tcp(h)/mail":                             "error",
		"postgres://u:secret@h/mail":                       "error",
		"mysql://u:secret@h:port/mail":                     "error",
	} {
		c, err := parse(dsn)
		got := "error"
		if err == nil {
			got = fmt.Sprintf("%s %s %s %s", c.Net, c.Addr, c.User, c.DBName)
			if c.TLS != nil {
				got += " tls"
			}
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "ret@") {
			t.Errorf("%s: %v tells a secret", dsn, err)
		}
		testkit.Equal(t, dsn, got, want)
	}
}

// testClasses makes everything wrong that can be.
func testClasses(t *testing.T, d *database) {
	d.do(t, "insert into senders (id, address) values (1, 'a@bulk.example')")
	d.do(t, "create table secret_table (entry int)")
	refusing, dumb := testkit.Refusing(t), testkit.Listen(t)
	go func() {
		for {
			conn, err := dumb.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("\x05\x00\x00\x00HTTP/1.1 400 what\r\n\r\n"))
			conn.Close()
		}
	}()
	good := d.URL("reader", password, d.name)
	for _, tt := range []struct {
		name, dsn, query string
		want             mirror.Class
	}{
		{"another password", d.URL("reader", "wrong"+password, d.name), rows, mirror.ClassAuth},
		{"another user", d.URL("none", password, d.name), rows, mirror.ClassAuth},
		{"a database that is not ours", d.URL("reader", password, "mysql"), rows, mirror.ClassAuth},
		{"another table", good, "select entry from elsewhere", mirror.ClassSchema},
		{"another column", good, "select entry from senders", mirror.ClassSchema},
		{"no column entry", good, "select address from senders", mirror.ClassSchema},
		{"no SQL", good, "selec entry", mirror.ClassQuery},
		{"a write", good, "delete from senders", mirror.ClassAuth},
		{"two statements", good, "select address as entry from senders; select 1", mirror.ClassQuery},
		{"a table that we may not read", good, "select user as entry from mysql.user", mirror.ClassAuth},
		{"too slow", good, "set statement max_statement_time = 0.01 for select address as entry, sleep(5) as id from senders", mirror.ClassTimeout},
		{"nothing there", strings.Replace(good, d.Address, refusing, 1), rows, mirror.ClassUnreachable},
		{"no MySQL", strings.Replace(good, d.Address, dumb.Addr().String(), 1), rows, mirror.ClassUnreachable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mirrortest.WantFaultOf(t, d.bare(t, Options{DSN: tt.dsn, Query: tt.query, Changes: "none"}), tt.want, "", "secret")
		})
	}
}

// testWords reads what tables of other character sets and older servers have.
func testWords(t *testing.T, d *database) {
	d.do(t, `set sql_mode = ''; drop table senders; create table senders (id int primary key, address varchar(100) character set latin1, at timestamp null, until datetime) engine = InnoDB;
		set time_zone = '+05:00'; insert into senders values (1, 'bücher.example', '2030-01-01 05:00:00', '0000-00-00 00:00:00'), (2, 'Ann@Bulk.example', '2030-01-01 05:00:00', '2030-01-01 00:00:00'); set time_zone = default; set sql_mode = default`)
	s := d.source(t, Options{Changes: "log", Query: "select id, address as entry, coalesce(until, at) as expires from senders"})
	mark := mirrortest.WantRows(t, s, mirror.Row{Entry: "bücher.example", ID: "1"}, mirror.Row{Entry: "Ann@Bulk.example", Expires: 1893456000, ID: "2"})
	d.do(t, "update senders set at = now()")
	mark = mirrortest.WantChanges(t, s, mark, "Ann@Bulk.example ", "bücher.example ")
	// A collation that folds case takes two spellings for one entry.
	d.do(t, "insert into senders values (3, 'ann@bulk.example', null, null), (4, 'bucher.example', null, null)")
	d.do(t, "delete from senders where id = 3")
	if lines, _ := mirrortest.Changes(t, s, mark); !slices.Contains(lines, "Ann@Bulk.example ") || !slices.Contains(lines, "bucher.example ") {
		t.Errorf("%q", lines)
	}
	// Octets that are no text do not make a writer fail.
	d.do(t, "drop table senders; create table senders (id int primary key, address varbinary(2000)) engine = InnoDB")
	s = d.source(t, Options{Changes: "log", Query: "select id, address as entry from senders"})
	_, mark = mirrortest.Rows(t, s)
	d.do(t, "insert into senders values (1, x'ff00fe'), (2, null), (3, ''), (4, 'a@bulk.example'), (5, repeat('x', 2000))")
	if lines, _ := mirrortest.Changes(t, s, mark); !slices.Contains(lines, "a@bulk.example ") {
		t.Errorf("%.200q", lines)
	}
	if found, _ := mirrortest.Rows(t, s); len(found) != 5 || found[0] != (mirror.Row{Entry: "\xff\x00\xfe", ID: "1"}) {
		t.Errorf("%.200q", fmt.Sprint(found))
	}
}

// testOtherTable empties the table, makes it anew and drops a column.
func testOtherTable(t *testing.T, d *database) {
	d.do(t, "insert into senders (id, address) values (1, 'a@bulk.example')")
	s := d.source(t, Options{Changes: "log"})
	before, err := s.Fingerprint(t.Context())
	testkit.Must(t, err)
	_, mark := mirrortest.Rows(t, s)
	d.do(t, "truncate table senders; "+afterTruncate(testkit.Value(s.options.Table())(t)))
	mirrortest.WantLost(t, "after TRUNCATE", s, mark, "blockd_log says that anything may have changed")
	d.do(t, "drop table senders; "+table)
	_, err = s.Changes(t.Context(), mark, mirrortest.Ignore)
	if _, unlogged := errors.AsType[*mirror.Unlogged](err); !unlogged {
		t.Errorf("a table without triggers: %v", err)
	}
	s = d.source(t, Options{Changes: "log"})
	if again, err := s.Fingerprint(t.Context()); again == before || err != nil {
		t.Errorf("a new table is another one: %s, %v", again, err)
	}
	_, mark = mirrortest.Rows(t, s)
	d.do(t, "insert into senders (id, address) values (1, 'a@bulk.example'); begin; update blockd_log_rev set rev = rev + 1; insert into blockd_log (rev, list, entry, gone) select rev, 'abuse-desk', 'a@bulk.example', 0 from blockd_log_rev; commit")
	d.do(t, "alter table senders drop column why")
	_, err = s.Changes(t.Context(), mark, mirrortest.Ignore)
	mirrortest.WantFault(t, err, mirror.ClassSchema, "")
	mirrortest.WantFaultOf(t, s, mirror.ClassSchema, "")
}

// testKilled kills the connection in the middle of a full read.
func testKilled(t *testing.T, d *database) {
	d.do(t, "insert into senders (id, address, why) select seq, concat(seq, '@bulk.example'), repeat('x', 10000) from seq_1_to_2000")
	s := d.source(t, Options{Changes: "none"})
	read := 0
	_, err := s.All(t.Context(), func(mirror.Row) error {
		if read++; read == 10 {
			d.do(t, "begin not atomic declare victim bigint; select max(id) into victim from information_schema.processlist where user = 'reader'; kill victim; end")
		}
		return nil
	})
	if mirrortest.WantFault(t, err, mirror.ClassUnreachable, ""); read == 2000 {
		t.Error("everything was read")
	}
	if found, _ := mirrortest.Rows(t, s); len(found) != 2000 {
		t.Errorf("%d rows", len(found))
	}
}

// testHung stops the server in the middle: what asks it ends with its context.
func testHung(t *testing.T, d *database) {
	s := d.source(t, Options{Changes: "none"})
	mirrortest.Rows(t, s)
	defer d.Stop(t)()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	testkit.Fails(s.Fingerprint(ctx))(t, "a call with a deadline", context.DeadlineExceeded)
}

func testWatermark(t *testing.T, d *database) {
	for _, column := range []string{"int unsigned", "timestamp(6) null", "datetime null"} {
		d.do(t, "drop table senders; create table senders (id int primary key, address varchar(100), gone boolean not null default 0, touched "+column+")")
		first, second, now, future := "'2026-01-01 00:00:00'", "'2026-01-01 00:01:40'", "now()", "now() + interval 10 day"
		if column == "int unsigned" {
			first, second, now, future = "1700000000", "1700000100", "unix_timestamp()", "unix_timestamp() + 864000"
		}
		s := d.source(t, Options{Query: mirrortest.WatermarkQuery, Changes: "watermark", Watermark: "touched", Overlap: time.Minute})
		t.Run(column, func(t *testing.T) {
			mirrortest.Watermark(t, s, func(sql string) { d.do(t, sql) }, first, second, now, future)
		})
		if column == "int unsigned" {
			d.do(t, "delete from senders")
			mirrortest.Wide(t, s, func(sql string) { d.do(t, sql) })
		}
	}
}

// testTLS reads over TLS, whose certificate is checked unless the DSN says otherwise.
func testTLS(t *testing.T, d *database) {
	d.do(t, "create user encrypted identified by '"+password+"' require ssl; grant select on *.* to encrypted")
	for parameters, want := range map[string]mirror.Class{
		"":                             mirror.ClassAuth, // the server refuses what is plain
		"?tls=true":                    mirror.ClassAuth,
		"?tls=skip-verify":             "",
		"?tls_ca=" + d.CertificateFile: "",
	} {
		s := d.bare(t, Options{DSN: d.URL("encrypted", password, d.name) + parameters, Changes: "none"})
		_, err := s.All(t.Context(), mirrortest.Skip)
		mirrortest.WantFault(t, err, want, "")
	}
}

// testRubbish gives the driver answers that no server gives: real ones, from some octet on others.
func testRubbish(t *testing.T, d *database) {
	rng := rand.New(rand.NewPCG(50, 1))
	front := testkit.Listen(t)
	for range 150 {
		s := d.bare(t, Options{DSN: strings.Replace(d.URL("reader", password, d.name), d.Address, front.Addr().String(), 1), Changes: "none"})
		good, bad := rng.IntN(300), make([]byte, 1+rng.IntN(100))
		for i := range bad {
			bad[i] = byte(rng.Uint32() >> rng.IntN(32))
		}
		go func() {
			client, err := front.Accept()
			if err != nil {
				return
			}
			defer client.Close()
			server, err := net.Dial("tcp", d.Address)
			if err != nil {
				return
			}
			defer server.Close()
			go io.Copy(server, client)
			_, _ = io.CopyN(client, server, int64(good))
			_, _ = client.Write(bad)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := s.All(ctx, mirrortest.Skip); err == nil {
			t.Errorf("after %d octets %x was read", good, bad)
		}
		cancel()
		s.Close()
	}
}

// testTriggersFailNothing: whatever becomes of table and log, what the application writes is written, and blockd
// hears of it.
func testTriggersFailNothing(t *testing.T, d *database) {
	s := d.source(t, Options{Changes: "log", Query: "select senders.address entry from " + d.name + ".senders"})
	logged := func() (entries string) {
		testkit.Must(t, d.DB.QueryRow("select coalesce(group_concat(entry order by rev), 'none') from "+d.name+".blockd_log").Scan(&entries))
		return entries
	}
	write := func(what, want string, sql ...string) {
		t.Helper()
		for _, statement := range sql {
			if _, err := d.DB.Exec("use " + d.name + ";" + statement); err != nil {
				t.Errorf("%s: %s fails: %v", what, statement, err)
			}
		}
		if got := logged(); want != "" && got != want {
			t.Errorf("%s: the log has %q, want %q", what, got, want)
		}
	}
	write("as it was made", "a.example", "insert into senders (id, address) values (1, 'a.example'), (2, null)")
	write("the log refuses", "a.example", "alter table blockd_log add constraint none check (rev < 0 or list = 'abuse-desk' and rev < 2)", "insert into senders (id, address) values (3, 'b.example')")
	write("and takes again", "a.example,c.example", "alter table blockd_log drop constraint none", "insert into senders (id, address) values (4, 'c.example')")
	write("no owner in the log", "a.example,c.example,d.example", "alter table blockd_log drop column owner", "insert into senders (id, address) values (5, 'd.example')")
	write("no list in the log", "", "alter table blockd_log change list lists varchar(255)", "insert into senders (id, address) values (6, 'e.example')", "alter table blockd_log change lists list varchar(255)")
	write("no number", "", "delete from blockd_log_rev", "insert into senders (id, address) values (7, 'f.example')", "insert into senders (id, address) values (8, 'g.example')")
	write("the log has gone", "", "rename table blockd_log to kept", "insert into senders (id, address) values (9, 'h.example')", "update senders set address = 'i.example' where id = 9", "delete from senders where id = 9", "rename table kept to blockd_log")
	write("its numbers have gone", "", "drop table blockd_log_rev", "insert into senders (id, address) values (10, 'j.example')", "delete from senders")
	ddl := testkit.Value(s.DDL())(t)
	_, removal, _ := strings.Cut(ddl, "To remove all this again:\n")
	removal, _, _ = strings.Cut(removal, "-- and with the last list")
	write("after the removal", "none", strings.ReplaceAll(removal, "--   ", ""), "insert into senders (id, address) values (11, 'k.example')")
	d.source(t, Options{Changes: "log"}) // it can be made again
	write("made again", ",,,,", "alter table senders change address sender varchar(200)", "insert into senders (id, sender) values (12, 'l.example')", "update senders set sender = 'm.example'", "delete from senders")
}

// testTriggersWaitInVain has another transaction hold the number of the log for longer than a writer waits. MariaDB
// calls that fatal in a trigger, whatever handler it has; the writer hears what he hears of a locked row, his
// transaction goes on, and the DDL says so.
func testTriggersWaitInVain(t *testing.T, d *database) {
	s := d.source(t, Options{Changes: "log"})
	testkit.Has(t, testkit.Value(s.DDL())(t), "innodb_lock_wait_timeout hears error 1205")
	holder := testkit.Value(d.DB.Conn(t.Context()))(t)
	defer holder.Close()
	writer := testkit.Value(d.DB.Conn(t.Context()))(t)
	defer writer.Close()
	say := func(conn *sql.Conn, text string, code uint16) {
		t.Helper()
		_, err := conn.ExecContext(t.Context(), "use "+d.name+"; "+text)
		var said *client.MySQLError
		if errors.As(err, &said); err == nil && code > 0 || err != nil && (said == nil || said.Number != code) {
			t.Errorf("%s: %v, want error %d", text, err, code)
		}
	}
	say(holder, "begin; update blockd_log_rev set rev = rev + 1", 0)
	say(writer, "set session innodb_lock_wait_timeout = 1; begin; create temporary table its (own int); insert into its values (1)", 0)
	say(writer, "insert into senders (id, address) values (1, 'a.example')", 1205)
	say(holder, "rollback", 0)
	say(writer, "insert into senders (id, address) select own, 'b.example' from its; commit", 0)
	var wrote, logged string
	testkit.Must(t, d.DB.QueryRow("select (select group_concat(address) from "+d.name+".senders), (select group_concat(entry) from "+d.name+".blockd_log)").Scan(&wrote, &logged))
	testkit.Got(wrote, logged)(t, "written, and logged", "b.example", "b.example")
}
