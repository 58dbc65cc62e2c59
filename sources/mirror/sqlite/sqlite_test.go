package sqlite

import (
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

	driver "modernc.org/sqlite"

	"blockd/internal/testkit"
	"blockd/internal/testkit/writers"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

// TestMain chooses the kind of locks before a test opens a database, as Open does in a daemon: the first lock of a process decides.
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
	if _, err := d.Exec(text, args...); err != nil {
		t.Fatalf("%.200s: %v", text, err)
	}
}

// source opens the database as a list does; with a log it has what the source asks for.
func (d database) source(t testing.TB, o Options) *Source {
	t.Helper()
	s := d.bare(t, o)
	if o.Changes == "log" {
		d.do(t, s.DDL())
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

func TestRowsAndLog(t *testing.T) {
	d := newDatabase(t, "wal")
	d.do(t, "insert into senders values (1, 'ann@b.example', 'block', '2030-01-01 00:00:00', 'why'), (2, 'c.example', null, null, null), (3, cast(x'6100ff' as text), null, 1893456000, null), (4, x'622e6578616d706c65', null, null, null)")
	mirrortest.WantFaultOf(t, d.bare(t, Options{Changes: "log"}), mirror.ClassSchema, "hint: blockd source ddl abuse-desk prints what a log needs")
	s := d.source(t, Options{Changes: "log"})
	mark := mirrortest.WantRows(t, s, mirror.Row{Entry: "ann@b.example", Action: "block", Expires: 1893456000, Reason: "why", ID: "1"}, mirror.Row{Entry: "c.example", ID: "2"},
		mirror.Row{Entry: "a\x00\xff", Expires: 1893456000, ID: "3"}, mirror.Row{Entry: "b.example", ID: "4"})
	d.do(t, "update senders set address = 'Ann2@b.example' where id = 1")
	d.do(t, "delete from senders where id = 2")
	d.do(t, "update senders set why = 'x' where id = 4")
	next := mirrortest.WantChanges(t, s, mark, "Ann2@b.example block", "ann@b.example", "b.example ", "c.example")
	d.do(t, "delete from blockd_log where rev <= 2")
	mirrortest.WantTooOld(t, "the log was cleaned", s, mark)
	d.do(t, "delete from blockd_log")
	mirrortest.WantChanges(t, s, next) // it was cleaned up to where we are
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
