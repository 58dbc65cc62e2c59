package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/writers"
	"blockd/sources/mirror"
)

func classOf(err error) mirror.Class {
	if e, ok := errors.AsType[*mirror.Error](err); ok {
		return e.Class
	}
	return ""
}

func nothing(mirror.Row) error { return nil }

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
		if err == nil || !strings.HasPrefix(err.Error(), strings.TrimSpace(want)) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := Open(good); err != nil {
		t.Error(err)
	}
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
			_, err := s.All(t.Context(), nothing)
			if err == nil || classOf(err) != tt.want || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %s", err, tt.want)
			}
			t.Log(err)
		})
	}
}

// TestHotJournal reads what a program has left that was killed while it wrote.
func TestHotJournal(t *testing.T) {
	d := newDatabase(t, "delete")
	d.do(t, "insert into senders (id, address, why) values (1, 'a@bulk.example', hex(zeroblob(100000)))")
	conn, err := d.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range []string{"pragma cache_size = 1", "begin immediate", "update senders set address = 'b@bulk.example', why = hex(zeroblob(200000))"} {
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	crashed := filepath.Join(t.TempDir(), "crashed.db")
	for _, suffix := range []string{"", "-journal"} {
		testkit.Write(t, crashed+suffix, string(testkit.Read(t, d.path+suffix)))
	}
	s, err := Open(Options{DSN: "sqlite:" + crashed, Query: rows, Changes: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.All(t.Context(), nothing); classOf(err) != mirror.ClassUnreachable || !strings.Contains(err.Error(), "hint") {
		t.Errorf("%v", err)
	}
	other, err := sql.Open("sqlite", crashed)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Exec("update senders set action = 'allow'"); err != nil {
		t.Fatal(err)
	}
	if lines, _ := all(t, s); len(lines) != 1 || !strings.HasPrefix(lines[0], "a@bulk.example|allow") {
		t.Errorf("%.100q", lines)
	}
}

// TestAnotherFile puts another file in the place of the database, as programs do that write a file anew.
func TestAnotherFile(t *testing.T) {
	d := newDatabase(t, "wal")
	s := d.source(t, Options{Changes: "log"})
	before, err := s.Fingerprint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Fingerprint(t.Context()); again != before {
		t.Errorf("%s, then %s, %v", before, again, err)
	}
	d.Close()
	testkit.Write(t, d.path+".new", string(testkit.Read(t, d.path)))
	if err := os.Rename(d.path+".new", d.path); err != nil {
		t.Fatal(err)
	}
	if again, err := s.Fingerprint(t.Context()); again == before || err != nil {
		t.Errorf("%s, %v", again, err)
	}
}

// TestNothingWritten tells without a log that nothing was written.
func TestNothingWritten(t *testing.T) {
	d := newDatabase(t, "delete")
	d.do(t, "insert into senders (id, address) values (1, 'a@bulk.example')")
	s := d.source(t, Options{Changes: "none"})
	_, mark := all(t, s)
	if _, err := s.Changes(t.Context(), mark, nil); !errors.Is(err, mirror.ErrTooOld) {
		t.Errorf("a file of this moment may be written once more in it: %v", err)
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(d.path, past, past); err != nil {
		t.Fatal(err)
	}
	_, mark = all(t, s)
	if again, err := s.Changes(t.Context(), mark, nil); err != nil || again != mark {
		t.Errorf("%q, %v", again, err)
	}
	if _, err := s.Changes(t.Context(), "2026-01-01T00:00:00Z", nil); !errors.Is(err, mirror.ErrTooOld) {
		t.Errorf("the mark of another read: %v", err)
	}
	woken := make(chan error)
	go func() { woken <- s.Wait(t.Context()) }()
	d.do(t, "delete from senders")
	if err := <-woken; err != nil {
		t.Errorf("Wait: %v", err)
	}
	if _, err := s.Changes(t.Context(), mark, nil); !errors.Is(err, mirror.ErrTooOld) {
		t.Errorf("after a change: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	all(t, s)
	if err := s.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait without a change: %v", err)
	}
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
	if classOf(err) != mirror.ClassTimeout {
		t.Errorf("%v", err)
	}
	if lines, _ := all(t, s); lines != nil {
		t.Errorf("%q", lines)
	}
}

// TestBusy waits for a writer that has the database for itself, no longer than it may.
func TestBusy(t *testing.T) {
	d := newDatabase(t, "delete")
	s := d.source(t, Options{Changes: "none"})
	tx, err := d.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("pragma locking_mode = exclusive; insert into senders (id, address) values (1, 'a@bulk.example')"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.All(ctx, nothing); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// TestTwoListsOfOneFile reads two lists from one file. The second one does not end the first one's lock, so that another process
// does not write into what is being read.
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
		if err := p.Wait(); err == nil {
			t.Error("another process wrote while the file was read")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestLargeRows(t *testing.T) {
	d := newDatabase(t, "wal")
	s := d.source(t, Options{Changes: "log"})
	_, mark := all(t, s)
	d.do(t, "insert into senders (id, address, why) values (1, 'a@bulk.example', hex(zeroblob(500000)))")
	if lines, _ := changed(t, s, mark); len(lines) != 1 {
		t.Errorf("%.100q", lines)
	}
	d.do(t, "insert into senders (id, address, why) select 1 + rowid, rowid || '@bulk.example', why from (select 1 as rowid, why from senders union all select 2, why from senders union all select 3, why from senders union all select 4, why from senders union all select 5, why from senders)")
	if _, err := s.Changes(t.Context(), mark, nil); !errors.Is(err, mirror.ErrTooOld) {
		t.Errorf("%v", err)
	}
	if lines, _ := all(t, s); len(lines) != 6 {
		t.Errorf("%d lines", len(lines))
	}
}

// TestLogOfABackup restores the file from a backup, and writes as many changes as it had.
func TestLogOfABackup(t *testing.T) {
	d := newDatabase(t, "delete")
	s := d.source(t, Options{Changes: "log"})
	d.do(t, "insert into senders (id, address) values (1, 'a@bulk.example')")
	_, mark := all(t, s)
	d.do(t, "update blockd_log set at = '2030-01-01 00:00:00.000'")
	if _, err := s.Changes(t.Context(), mark, nil); !errors.Is(err, mirror.ErrTooOld) {
		t.Errorf("%v", err)
	}
	_, mark = all(t, s)
	d.do(t, "insert into blockd_log (list, entry, gone) values ('abuse-desk', '', 1)")
	if _, err := s.Changes(t.Context(), mark, nil); !errors.Is(err, mirror.ErrTooOld) {
		t.Errorf("an empty entry: %v", err)
	}
}

func TestWatermark(t *testing.T) {
	for _, tt := range []struct{ column, first, second string }{
		{"integer", "1700000000", "1700000100"},
		{"datetime", "'2026-01-01 00:00:00'", "'2026-01-01 00:01:40.5'"},
		{"text", "'2026-01-01T00:00:00Z'", "'2026-01-01T00:01:40Z'"},
	} {
		t.Run(tt.column, func(t *testing.T) {
			d := newDatabase(t, "wal")
			d.do(t, "drop table senders; create table senders (id integer primary key, address text, gone boolean not null default 0, touched "+tt.column+")")
			s := d.source(t, Options{Query: "select id, address as entry, gone as deleted, touched from senders -- all", Changes: "watermark", Watermark: "touched", Overlap: time.Minute})
			if lines, mark := all(t, s); lines != nil || mark != "" {
				t.Errorf("of nothing: %q, %q", lines, mark)
			}
			if lines, mark := changed(t, s, ""); lines != nil || mark != "" {
				t.Errorf("of nothing: %q, %q", lines, mark)
			}
			d.do(t, "insert into senders values (1, 'a@bulk.example', 0, "+tt.first+"), (2, 'b@bulk.example', 1, "+tt.first+")")
			if _, err := s.Changes(t.Context(), "", nil); !errors.Is(err, mirror.ErrTooOld) {
				t.Errorf("the first row: %v", err)
			}
			lines, mark := all(t, s)
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "a@bulk.example") {
				t.Errorf("%q", lines)
			}
			if lines, _ := changed(t, s, mark); strings.Join(lines, ", ") != "a@bulk.example: 1, b@bulk.example:" {
				t.Errorf("within the overlap: %q", lines)
			}
			lines, again := changed(t, s, mark)
			if lines != nil || again != mark {
				t.Errorf("the same once more: %q, %q", lines, again)
			}
			d.do(t, "update senders set gone = 1 - gone, touched = "+tt.second)
			lines, next := changed(t, s, mark)
			if strings.Join(lines, ", ") != "a@bulk.example:, b@bulk.example: 2" || next == mark {
				t.Errorf("%q, %q", lines, next)
			}
		})
	}
	d := newDatabase(t, "wal")
	s := d.source(t, Options{Query: "select address as entry, action from senders", Changes: "watermark", Watermark: "action"})
	d.do(t, "insert into senders (id, address, action) values (1, 'a@bulk.example', 'block')")
	_, err := s.All(t.Context(), nothing)
	if err == nil {
		_, err = s.Changes(t.Context(), "block", nil)
	}
	if classOf(err) != mirror.ClassSchema {
		t.Errorf("a watermark that is no time: %v", err)
	}
}

func TestDDLOfAnyName(t *testing.T) {
	d := newDatabase(t, "wal")
	for _, o := range []Options{
		{List: "it's a list", Query: "select s.address entry from senders as s where s.id > 0"},
		{List: "it's a list", Query: "select \"address\" AS \"entry\" from \"senders\""},
	} {
		o.DSN, o.Changes = "sqlite:"+d.path, "log"
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		d.do(t, s.DDL())
		d.do(t, s.DDL())
		_, mark := all(t, s)
		d.do(t, "insert into senders (address) values ('a@bulk.example'), (null), ('')")
		if lines, _ := changed(t, s, mark); len(lines) != 1 {
			t.Errorf("%q", lines)
		}
		d.do(t, "drop table senders; "+table)
	}
	s, err := Open(Options{DSN: "sqlite:" + d.path, Changes: "log", List: "x", Query: "select local || '@' || domain as entry from a join b using (id)"})
	if err != nil || !strings.Contains(s.DDL(), "put their names here") {
		t.Errorf("%v: %s", err, s.DDL())
	}
}
