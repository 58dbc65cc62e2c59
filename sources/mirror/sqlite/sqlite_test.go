package sqlite

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	driver "modernc.org/sqlite"

	"blockd/internal/testkit"
	"blockd/internal/testkit/writers"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

// TestMain chooses the kind of locks before a test opens a database, as Open does in a daemon: the first lock of a
// process decides.
func TestMain(m *testing.M) {
	if _, err := driver.OFDLocking(true); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const table = "create table senders (id integer primary key, address text, action text, expires datetime, why text)"

const rows = "select id, address as entry, action, expires, why as reason from senders"

// database is a database that a test writes to.
type database struct {
	*sql.DB
	path, url string
}

func newDatabase(t testing.TB, mode string) database {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mail? #1%20.db") // a path is no URL
	url := "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path) + "?_txlock=immediate&_busy_timeout=60000&_journal_mode=" + mode
	db := testkit.Value(sql.Open("sqlite", url))(t)
	t.Cleanup(func() { db.Close() })
	d := database{db, path, url}
	d.do(t, table)
	return d
}

func (d database) do(t testing.TB, text string, args ...any) {
	t.Helper()
	testkit.Value(d.Exec(text, args...))(t)
}

// source opens the database as a list does; with a log it has what the source asks for.
func (d database) source(t testing.TB, o Options) *Source {
	t.Helper()
	s := d.bare(t, o)
	if o.Changes == "log" {
		d.do(t, testkit.Value(s.DDL())(t))
	}
	return s
}

// bare opens the database, which stays as it is.
func (d database) bare(t testing.TB, o Options) *Source {
	t.Helper()
	o.DSN, o.List = "sqlite:"+d.path, "abuse-desk"
	if o.Query == "" {
		o.Query = rows
	}
	s := testkit.Value(Open(o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestDriver(t *testing.T) {
	for _, mode := range []string{"delete", "wal"} {
		d := newDatabase(t, mode)
		t.Run(mode, func(t *testing.T) {
			mirrortest.Run(t, mirrortest.Driver{
				Open: func(t testing.TB) mirror.Source { return d.source(t, Options{Changes: "log"}) },
				Put: func(t testing.TB, entry, action string) {
					d.do(t, fmt.Sprintf("delete from senders where address = '%[1]s'; insert into senders (address, action) values ('%[1]s', '%[2]s')", entry, action))
				},
				Remove: func(t testing.TB, entry string) { d.do(t, "delete from senders where address = ?", entry) },
			})
		})
	}
}

func TestLog(t *testing.T) {
	d := newDatabase(t, "wal")
	mirrortest.Log(t, d.bare(t, Options{Changes: "log"}), func() mirror.Source { return d.source(t, Options{Changes: "log"}) }, func(sql string) { d.do(t, sql) })
}

// TestUnlogged changes a table in ways that no trigger tells of, or none that was there at first.
func TestUnlogged(t *testing.T) {
	const aside = "create table loaded (id integer primary key, address text, action text, expires datetime, why text); insert into loaded (address, action) values ('b.example', 'block'); "
	const add = "insert into senders (address, action) values ('b.example', 'block')"
	ab, b := []string{"a.example b", "b.example b"}, []string{"b.example b"}
	for _, u := range []mirrortest.Unseen{
		{What: "a plain change", Changes: []string{add}, Want: ab},
		{What: "loaded aside, and the former one dropped", Changes: []string{aside + "drop table senders; alter table loaded rename to senders"}, Want: b, Unlogged: true},
		{What: "the former one kept, with the triggers", Changes: []string{aside + "alter table senders rename to former; alter table loaded rename to senders"}, Want: b, Unlogged: true},
		{What: "a trigger dropped", Changes: []string{"drop trigger blockd_abuse_desk_insert; " + add}, Want: ab, Unlogged: true},
		{What: "a trigger of another list", Changes: []string{"drop trigger blockd_abuse_desk_insert; create trigger x after insert on senders begin insert into blockd_log (list, entry, gone) values ('other', 'x', 0); end; " + add}, Want: ab, Unlogged: true},
		{What: "a trigger by hand", Changes: []string{"drop trigger blockd_abuse_desk_insert; create trigger \"x\"\nAFTER\tINSERT\nON senders begin insert into blockd_log (list, entry, gone) values ('abuse-desk', new.address, 0); end; " + add}, Want: ab},
	} {
		d := newDatabase(t, "wal")
		s := d.source(t, Options{Changes: "log"})
		d.do(t, "insert into senders (address, action) values ('a.example', 'block')")
		u.Seen(t, s, func(sql string) { d.do(t, sql) }, func() {
			d.do(t, "drop trigger if exists blockd_abuse_desk_insert; drop trigger if exists blockd_abuse_desk_update; drop trigger if exists blockd_abuse_desk_delete;"+testkit.Value(s.DDL())(t))
		})
	}
}

// TestOctets: a column holds any octets, and a blob is a text.
func TestOctets(t *testing.T) {
	d := newDatabase(t, "wal")
	d.do(t, "insert into senders values (3, cast(x'6100ff' as text), null, 1893456000, null), (4, x'622e6578616d706c65', null, null, null)")
	mirrortest.WantRows(t, d.source(t, Options{Changes: "log"}), mirror.Row{Entry: "a\x00\xff", Expires: 1893456000, ID: "3"}, mirror.Row{Entry: "b.example", ID: "4"})
}

func TestMissingFileIsNotMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.db")
	s, err := Open(Options{DSN: "sqlite:" + path, Query: rows, Changes: "none"})
	testkit.Must(t, err)
	_, err = s.Fingerprint(t.Context())
	mirrortest.WantFault(t, err, mirror.ClassUnreachable, "")
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was made")
	}
}

// TestNothingIsLeftBeside reads a WAL database that a program has open, and then one that no program has.
func TestNothingIsLeftBeside(t *testing.T) {
	d := newDatabase(t, "wal")
	d.do(t, "insert into senders (id, address) values (1, 'a.example')")
	s, row := d.source(t, Options{Changes: "none"}), mirror.Row{Entry: "a.example", ID: "1"}
	mirrortest.WantRows(t, s, row)
	d.Close() // the last writer removes the write-ahead log
	s.Close()
	mirrortest.WantRows(t, s, row)
	s.Close()
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(d.path), "*")); !slices.Equal(files, []string{d.path}) {
		t.Errorf("%q", files)
	}
}

const lastNumber = "select max(rev) from blockd_log"

// writerPath is the environment of a process that writes to a database.
const writerPath = "BLOCKD_TEST_WRITER"

var soak = flag.Bool("soak", false, "follow writers for long")

// process is a program that writes to a database.
type process struct {
	*exec.Cmd
	order io.WriteCloser // an octet for each change
}

func startWriter(t testing.TB, url string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], "-test.run=^TestFollowsProcesses$")}
	p.Env = append(os.Environ(), writerPath+"="+url)
	var err error
	if p.order, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.Stderr = os.Stderr
	testkit.Must(t, p.Start())
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// write makes a change for each octet of its standard input.
func write(t *testing.T, url string) {
	db := testkit.Value(sql.Open("sqlite", url))(t)
	defer db.Close()
	rng := rand.New(rand.NewPCG(rand.Uint64(), 50))
	for in := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(in); err != nil {
			return
		}
		testkit.Must(t, writers.Change(t.Context(), db, rng, lastNumber))
	}
}

// TestFollowsProcesses lets two programs write at random, kills them at any moment, and starts them again. What the
// copy serves are states that the table had after a transaction, in their order, and in the end the last one.
func TestFollowsProcesses(t *testing.T) {
	if url := os.Getenv(writerPath); url != "" {
		write(t, url)
		return
	}
	polls := 20
	if *soak {
		polls = 2000
	}
	for _, mode := range []string{"delete", "wal"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, mode)
			d.do(t, "drop table senders; "+writers.Tables)
			url := d.url + "&_synchronous=off"
			source := d.source(t, Options{Changes: "log", Query: writers.Query})
			copied := writers.Follow(t, source)
			both := []*process{startWriter(t, url), startWriter(t, url)}
			rng := rand.New(rand.NewPCG(50, 50))
			for range polls {
				for _, p := range both {
					_, _ = p.order.Write(make([]byte, rng.IntN(60))) // while we read
				}
				switch rng.IntN(5) {
				case 0:
					i := rng.IntN(2)
					both[i].kill()
					both[i] = startWriter(t, url)
				case 1:
					copied.Restart(t)
				}
				err := copied.Poll(t, t.Context())
				if class := mirrortest.Class(err); class != "" && class != mirror.ClassTimeout && class != mirror.ClassUnreachable {
					t.Fatal(err)
				}
			}
			for _, p := range both {
				p.order.Close()
				_ = p.Wait()
			}
			copied.Check(t, d.DB)
		})
	}
}

// TestFollowsOwners: entries with owners are followed by the log as by a watermark.
func TestFollowsOwners(t *testing.T) {
	for _, o := range []Options{
		{Changes: "log", Query: writers.OwnedQuery, PerRecipient: true},
		{Changes: "watermark", Watermark: "changed", Query: writers.OwnedWatermark, PerRecipient: true},
	} {
		t.Run(o.Changes, func(t *testing.T) {
			d := newDatabase(t, "wal")
			d.do(t, "drop table senders; "+writers.OwnedTable)
			writers.FollowOwned(t, d.source(t, o), o.Watermark != "", func(sql string) { d.do(t, sql) })
		})
	}
}

func TestOptions(t *testing.T) {
	good := Options{DSN: "sqlite:/var/lib/x.db", Query: rows, Changes: "log", List: "x"}
	for want, change := range map[string]func(*Options){
		"dsn_file: want":      func(o *Options) { o.DSN = "mysql://u:secret@h/db" },
		"dsn_file: want ":     func(o *Options) { o.DSN = "sqlite:" },
		"query: missing":      func(o *Options) { o.Query = " ; " },
		"changes: want":       func(o *Options) { o.Changes = "often" },
		"watermark: missing":  func(o *Options) { o.Changes = "watermark" },
		"watermark: only":     func(o *Options) { o.Watermark = "at" },
		"watermark: \"a) q;":  func(o *Options) { o.Changes, o.Watermark = "watermark", "a) q; --" },
		"overlap: -1s":        func(o *Options) { o.Overlap = -time.Second },
		"notify: only Postgr": func(o *Options) { o.Notify = "x" },
	} {
		o := good
		change(&o)
		_, err := Open(o)
		mirrortest.WantRefused(t, o, err, strings.TrimSpace(want), "secret")
	}
	testkit.Value(Open(good))(t)
}

func TestClasses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		query string
		want  mirror.Class
		make  func(t *testing.T, d database)
	}{
		{"no file", rows, mirror.ClassUnreachable, func(t *testing.T, d database) { os.Remove(d.path) }},
		{"a folder", rows, mirror.ClassSchema, func(t *testing.T, d database) { os.Remove(d.path); os.Mkdir(d.path, 0o755) }},
		{"an empty file", rows, mirror.ClassSchema, func(t *testing.T, d database) { os.Truncate(d.path, 0) }},
		{"a text", rows, mirror.ClassSchema, func(t *testing.T, d database) { testkit.Write(t, d.path, "a@b.example\n") }},
		{"torn", rows, mirror.ClassSchema, func(t *testing.T, d database) { os.Truncate(d.path, 8192) }},
		{"another table", "select entry from elsewhere", mirror.ClassSchema, nil},
		{"a column that went", rows, mirror.ClassSchema, func(t *testing.T, d database) { d.do(t, "alter table senders drop column why") }},
		{"a quoted column that went", `select address as entry, "why" as reason from senders`, mirror.ClassSchema, func(t *testing.T, d database) { d.do(t, "alter table senders drop column why") }},
		{"no column entry", "select address from senders", mirror.ClassSchema, nil},
		{"no SQL", "selec entry", mirror.ClassQuery, nil},
		{"two statements", "select address as entry from senders; drop table senders", mirror.ClassQuery, nil},
		{"a write", "delete from senders returning address as entry", mirror.ClassQuery, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDatabase(t, "delete")
			d.do(t, "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) insert into senders (id, address) select i, 'user' || i || '@bulk.example' from n")
			s := d.source(t, Options{Query: tt.query, Changes: "none"})
			if tt.make != nil {
				tt.make(t, d)
			}
			mirrortest.WantFaultOf(t, s, tt.want, "")
		})
	}
}

// TestHotJournal reads what a program has left that was killed while it wrote.
func TestHotJournal(t *testing.T) {
	d := newDatabase(t, "delete")
	d.do(t, "insert into senders (id, address, why) values (1, 'a@bulk.example', hex(zeroblob(100000)))")
	conn := testkit.Value(d.Conn(t.Context()))(t)
	defer conn.Close()
	for _, text := range []string{"pragma cache_size = 1", "begin immediate", "update senders set address = 'b@bulk.example', why = hex(zeroblob(200000))"} {
		testkit.Value(conn.ExecContext(t.Context(), text))(t)
	}
	crashed := filepath.Join(t.TempDir(), "crashed.db")
	for _, suffix := range []string{"", "-journal"} {
		testkit.Write(t, crashed+suffix, string(testkit.Read(t, d.path+suffix)))
	}
	s := testkit.Value(Open(Options{DSN: "sqlite:" + crashed, Query: rows, Changes: "none"}))(t)
	mirrortest.WantFaultOf(t, s, mirror.ClassUnreachable, "hint")
	other := testkit.Value(sql.Open("sqlite", crashed))(t)
	defer other.Close()
	testkit.Value(other.Exec("update senders set action = 'allow'"))(t)
	if found, _ := mirrortest.Rows(t, s); len(found) != 1 || found[0].Entry != "a@bulk.example" || found[0].Action != "allow" {
		t.Errorf("%.100q", fmt.Sprint(found))
	}
}

// TestAnotherFile puts another file in the place of the database, as programs do that write a file anew.
func TestAnotherFile(t *testing.T) {
	d := newDatabase(t, "wal")
	s := d.source(t, Options{Changes: "log"})
	before := testkit.Value(s.Fingerprint(t.Context()))(t)
	if again, err := s.Fingerprint(t.Context()); again != before {
		t.Errorf("%s, then %s, %v", before, again, err)
	}
	d.Close()
	testkit.Write(t, d.path+".new", string(testkit.Read(t, d.path)))
	testkit.Must(t, os.Rename(d.path+".new", d.path))
	if again, err := s.Fingerprint(t.Context()); again == before || err != nil {
		t.Errorf("%s, %v", again, err)
	}
}

// TestNothingWritten tells without a log that nothing was written.
func TestNothingWritten(t *testing.T) {
	d := newDatabase(t, "delete")
	d.do(t, "insert into senders (id, address) values (1, 'a@bulk.example')")
	s := d.source(t, Options{Changes: "none"})
	_, mark := mirrortest.Rows(t, s)
	mirrortest.WantTooOld(t, "a file of this moment may be written once more in it", s, mark)
	past := time.Now().Add(-time.Hour)
	testkit.Must(t, os.Chtimes(d.path, past, past))
	_, mark = mirrortest.Rows(t, s)
	if again := mirrortest.WantChanges(t, s, mark); again != mark {
		t.Errorf("%q", again)
	}
	mirrortest.WantTooOld(t, "the mark of another read", s, "2026-01-01T00:00:00Z")
	woken := make(chan error)
	go func() { woken <- s.Wait(t.Context()) }()
	d.do(t, "delete from senders")
	testkit.Equal(t, "Wait", <-woken, nil)
	testkit.Value(s.Fingerprint(t.Context()))(t) // as whoever asks for changes does first
	mirrortest.WantTooOld(t, "after a change", s, mark)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mirrortest.Rows(t, s)
	testkit.IsError(t, "Wait without a change", s.Wait(ctx), context.Canceled)
}

// TestOpenedWhileRead begins to read a file in WAL mode that no program has open. Then one has.
func TestOpenedWhileRead(t *testing.T) {
	d := newDatabase(t, "wal")
	d.do(t, "insert into senders (id, address) values (1, 'a@bulk.example')")
	s := d.source(t, Options{Changes: "none"})
	d.Close()
	_, err := s.All(t.Context(), func(mirror.Row) error {
		other, err := sql.Open("sqlite", d.url)
		if err != nil {
			return err
		}
		defer other.Close()
		_, err = other.Exec("delete from senders")
		return err
	})
	mirrortest.WantFault(t, err, mirror.ClassTimeout, "")
	mirrortest.WantRows(t, s)
}

// TestBusy waits for a writer that has the database for itself, no longer than it may.
func TestBusy(t *testing.T) {
	d := newDatabase(t, "delete")
	s := d.source(t, Options{Changes: "none"})
	tx := testkit.Value(d.Begin())(t)
	testkit.Value(tx.Exec("pragma locking_mode = exclusive; insert into senders (id, address) values (1, 'a@bulk.example')"))(t)
	testkit.Must(t, tx.Commit())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	testkit.Fails(s.All(ctx, mirrortest.Skip))(t, "a call with a deadline", context.DeadlineExceeded)
}

// TestTwoListsOfOneFile reads two lists from one file. The second one does not end the first one's lock, so that
// another process does not write into what is being read.
func TestTwoListsOfOneFile(t *testing.T) {
	d := newDatabase(t, "delete")
	d.do(t, "drop table senders; "+writers.Tables+"; insert into senders values (1, 'a@bulk.example', 'block')")
	one := d.source(t, Options{Changes: "log", Query: writers.Query})
	two := d.source(t, Options{Changes: "log", Query: writers.Query})
	_, err := one.All(t.Context(), func(mirror.Row) error {
		if _, err := two.Fingerprint(t.Context()); err != nil {
			return err
		}
		p := startWriter(t, strings.Replace(d.url, "60000", "0", 1))
		_, err := p.order.Write([]byte{0})
		if err != nil {
			return err
		}
		p.order.Close()
		testkit.Equal(t, "another process cannot write while the file is read", p.Wait() != nil, true)
		return nil
	})
	testkit.Should(t, err)
}

// TestLogOfABackup restores the file from a backup, and writes as many changes as it had.
func TestLogOfABackup(t *testing.T) {
	d := newDatabase(t, "delete")
	s := d.source(t, Options{Changes: "log"})
	d.do(t, "insert into senders (id, address) values (1, 'a@bulk.example')")
	_, mark := mirrortest.Rows(t, s)
	d.do(t, "update blockd_log set at = '2030-01-01 00:00:00.000'")
	mirrortest.WantLost(t, "the number is of another change", s, mark, "of blockd_log is another one than was read")
	_, mark = mirrortest.Rows(t, s)
	d.do(t, "insert into blockd_log (list, entry, gone) values ('abuse-desk', '', 1)")
	mirrortest.WantLost(t, "an empty entry", s, mark, "blockd_log says that anything may have changed")
}

func TestWatermark(t *testing.T) {
	for _, tt := range []struct{ column, first, second, now, future string }{
		{"integer", "1700000000", "1700000100", "unixepoch()", "unixepoch() + 864000"},
		{"bigint", "1700000000000", "1700000100000", "unixepoch() * 1000", "(unixepoch() + 864000) * 1000"},
		{"datetime", "'2026-01-01 00:00:00'", "'2026-01-01 00:01:40.5'", "datetime('now')", "datetime('now', '+10 days')"},
		{"text", "'2026-01-01T00:00:00Z'", "'2026-01-01T00:01:40Z'", "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')", "'2999-01-01T00:00:00Z'"},
	} {
		t.Run(tt.column, func(t *testing.T) {
			d := newDatabase(t, "wal")
			d.do(t, "drop table senders; create table senders (id integer primary key, address text, gone boolean not null default 0, touched "+tt.column+")")
			s := d.source(t, Options{Query: mirrortest.WatermarkQuery, Changes: "watermark", Watermark: "touched", Overlap: time.Minute})
			mirrortest.Watermark(t, s, func(sql string) { d.do(t, sql) }, tt.first, tt.second, tt.now, tt.future)
			if tt.column == "integer" {
				d.do(t, "delete from senders")
				mirrortest.Wide(t, s, func(sql string) { d.do(t, sql) })
			}
		})
	}
	d := newDatabase(t, "wal")
	s := d.source(t, Options{Query: "select address as entry, action from senders", Changes: "watermark", Watermark: "action"})
	d.do(t, "insert into senders (id, address, action) values (1, 'a@bulk.example', 'block')")
	_, err := s.All(t.Context(), mirrortest.Skip)
	if err == nil {
		_, err = s.Changes(t.Context(), "watermark 0 block", nil)
	}
	mirrortest.WantFault(t, err, mirror.ClassSchema, "") // it is no time
}

func TestDDLOfAnyName(t *testing.T) {
	d := newDatabase(t, "wal")
	for _, o := range []Options{
		{List: "it's a list", Query: "select s.address entry from senders as s where s.id > 0"},
		{List: "it's a list", Query: "select \"address\" AS \"entry\" from \"senders\""},
	} {
		o.DSN, o.Changes = "sqlite:"+d.path, "log"
		s := testkit.Value(Open(o))(t)
		d.do(t, testkit.Value(s.DDL())(t))
		d.do(t, testkit.Value(s.DDL())(t))
		_, mark := mirrortest.Rows(t, s)
		d.do(t, "insert into senders (address) values ('a@bulk.example'), (null), ('')")
		mirrortest.WantChanges(t, s, mark, "a@bulk.example ")
		d.do(t, "drop table senders; "+table)
	}
	s := testkit.Value(Open(Options{DSN: "sqlite:" + d.path, Changes: "log", List: "x", Query: "select local || '@' || domain as entry from a join b using (id)"}))(t)
	if ddl, err := s.DDL(); ddl != "" || err == nil || !strings.HasPrefix(err.Error(), "the query has join, so that its rows are not those of one table; triggers can log a query of the form") {
		t.Error(ddl, err)
	}
}

// TestTriggersFailNothing: SQLite catches nothing within a trigger, so there is nothing in them that a value or
// another name makes fail, and what is printed for their removal comes before the log goes.
func TestTriggersFailNothing(t *testing.T) {
	d := newDatabase(t, "wal")
	for query, fine := range map[string]bool{
		"select senders.address entry from main.senders":         true,
		"select s.address entry, s.id from senders as s":         true,
		"select lower(address) entry from senders":               false,
		"select address as entry, address as entry from senders": false,
	} {
		s := testkit.Value(Open(Options{DSN: "sqlite:" + d.path, Changes: "log", List: "x", Query: query}))(t)
		ddl, err := s.DDL()
		if (err == nil) != fine {
			t.Errorf("%s: %v", query, err)
		}
		if err != nil {
			continue
		}
		d.do(t, ddl)
		_, mark := mirrortest.Rows(t, s)
		d.do(t, "insert into senders (address) values ('a@bulk.example'), (x'ff'), (7), (null)")
		mirrortest.WantChanges(t, s, mark, "7 ", "a@bulk.example ", "\xff ")
		d.do(t, "alter table senders rename column address to sender; update senders set sender = 'b@bulk.example'; insert into senders (sender) values ('c@bulk.example'); delete from senders")
		_, removal, _ := strings.Cut(ddl, "refuse changes of")
		_, removal, _ = strings.Cut(removal, "\n")
		removal, _, _ = strings.Cut(removal, "-- and with the last list: ")
		d.do(t, strings.ReplaceAll(removal, "--   ", "")+"drop table blockd_log; insert into senders (sender) values ('d@bulk.example'); drop table senders; "+table)
	}
}
