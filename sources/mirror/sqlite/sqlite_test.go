package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/sources/mirror"
)

var _ mirror.Origin = (*Source)(nil)

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
	db, err := sql.Open("sqlite", url)
	if err != nil {
		t.Fatal(err)
	}
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
	o.DSN, o.List = "sqlite:"+d.path, "abuse-desk"
	if o.Query == "" {
		o.Query = rows
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if o.Changes == "log" {
		d.do(t, s.DDL())
	}
	return s
}

// all reads everything.
func all(t testing.TB, s *Source) (lines []string, mark mirror.Mark) {
	t.Helper()
	mark, err := s.All(t.Context(), func(r mirror.Row) error {
		lines = append(lines, fmt.Sprintf("%s|%s|%d|%s|%s", r.Entry, r.Action, r.Expires, r.Reason, r.ID))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, mark
}

// changed reads what has changed.
func changed(t testing.TB, s *Source, since mirror.Mark) (lines []string, mark mirror.Mark) {
	t.Helper()
	mark, err := s.Changes(t.Context(), since, func(c mirror.Change) error {
		line := c.Entry + ":"
		for _, r := range c.Rows {
			line += " " + r.ID
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines, mark
}

func TestRowsAndLog(t *testing.T) {
	for _, mode := range []string{"delete", "wal"} {
		t.Run(mode, func(t *testing.T) {
			d := newDatabase(t, mode)
			d.do(t, "insert into senders values (1, 'ann@b.example', 'block', '2030-01-01 00:00:00', 'why'), (2, 'c.example', null, null, null), (3, cast(x'6100ff' as text), null, 1893456000, null), (4, x'622e6578616d706c65', null, null, null)")
			bare, err := Open(Options{DSN: "sqlite:" + d.path, Query: rows, Changes: "log", List: "abuse-desk"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := bare.All(t.Context(), nothing); classOf(err) != mirror.ClassSchema || !strings.HasSuffix(err.Error(), "hint: blockd source ddl abuse-desk prints what a log needs") {
				t.Errorf("without a log: %v", err)
			}
			s := d.source(t, Options{Changes: "log"})
			lines, mark := all(t, s)
			if want := []string{"ann@b.example|block|1893456000|why|1", "c.example||0||2", "a\x00\xff||1893456000||3", "b.example||0||4"}; !slices.Equal(lines, want) {
				t.Fatalf("%q, want %q", lines, want)
			}
			if lines, again := changed(t, s, mark); lines != nil || again != mark {
				t.Errorf("nothing has changed: %q, %s", lines, again)
			}
			d.do(t, "update senders set address = 'Ann2@b.example' where id = 1")
			d.do(t, "delete from senders where id = 2")
			d.do(t, "update senders set why = 'x' where id = 4")
			lines, next := changed(t, s, mark)
			if want := []string{"Ann2@b.example: 1", "ann@b.example:", "b.example: 4", "c.example:"}; !slices.Equal(lines, want) {
				t.Errorf("%q, want %q", lines, want)
			}
			s.Close()
			if lines, _ := changed(t, s, next); lines != nil {
				t.Errorf("after a new start: %q", lines)
			}
			d.do(t, "delete from blockd_log where rev <= 2")
			if _, err := s.Changes(t.Context(), mark, nil); !errors.Is(err, mirror.ErrTooOld) {
				t.Errorf("the log was cleaned: %v", err)
			}
			d.do(t, "delete from blockd_log")
			if _, err := s.Changes(t.Context(), next, nil); err != nil {
				t.Errorf("the log was cleaned up to where we are: %v", err)
			}
		})
	}
}

func TestMissingFileIsNotMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.db")
	s, err := Open(Options{DSN: "sqlite:" + path, Query: rows, Changes: "none"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Fingerprint(t.Context())
	if e, ok := errors.AsType[*mirror.Error](err); !ok || e.Class != mirror.ClassUnreachable {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was made")
	}
}

// TestNothingIsLeftBeside reads a WAL database that no program has open, and one that a program has.
func TestNothingIsLeftBeside(t *testing.T) {
	d := newDatabase(t, "wal")
	d.do(t, "insert into senders (id, address) values (1, 'a.example')")
	s := d.source(t, Options{Changes: "none"})
	if lines, _ := all(t, s); len(lines) != 1 {
		t.Fatalf("beside a writer: %q", lines)
	}
	d.Close() // the last writer removes the write-ahead log
	s.Close()
	if lines, _ := all(t, s); len(lines) != 1 {
		t.Errorf("without a writer: %q", lines)
	}
	s.Close()
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(d.path), "*")); !slices.Equal(files, []string{d.path}) {
		t.Errorf("%q", files)
	}
}
