// Package sqlite reads a list from an SQLite database that other programs write. It opens the file for reading alone,
// and leaves nothing beside it (docs/decisions/0050).
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"blockd/sources/mirror"
	"blockd/sources/mirror/query"
)

// busyTimeout is how long a read waits for a writer that has locked the whole database.
const busyTimeout = 5 * time.Second

// Options are what a [list.source] of kind "sqlite" says. DSN is sqlite:PATH.
type Options = query.Options

// Source is a query on an SQLite database. The file is open only while it is read. A Source is for one goroutine.
type Source struct {
	*query.Reader
	path    string
	options Options
	seen    file        // as the last read found it
	full    mirror.Mark // of a full read without a log or a watermark
	fullOf  file        // as that has found it; who only asks for the fingerprint later sees another one
}

// Open judges the options. Nothing is read. An error names the key.
func Open(o Options) (*Source, error) {
	path, ok := strings.CutPrefix(o.DSN, "sqlite:")
	if !ok || path == "" || strings.ContainsRune(path, 0) {
		return nil, errors.New("dsn_file: want sqlite:PATH")
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	// Locks of POSIX end when any descriptor of the file is closed, and look closes one. Where the others are not to
	// be had, locks of a second list of the same file may end early.
	_, _ = driver.OFDLocking(true)
	s := &Source{path: path, options: o}
	s.Reader = query.NewReader(o, query.Dialect{
		Last:     "select seq from sqlite_sequence where name = 'blockd_log'",
		Now:      "datetime('now')",
		Triggers: triggers,
		Text:     "text",
		Octets:   true,
		Values:   "values ",
		Explain:  "explain query plan ",
		Class:    class,
	}, s.read)
	return s, nil
}

// triggers is that of the dialect: the beginning of each trigger, up to its table. A schema is not asked for, a file
// has one.
const triggers = `(select case when exists (select 1 from sqlite_master where type = 'table' and place in ('', 'main') and lower(name) = lower(named)) then
	coalesce((select group_concat(lower(substr(flat, 1, instr(lower(flat), ' on ')))) from
		(select replace(replace(replace(sql, char(10), ' '), char(13), ' '), char(9), ' ') as flat from sqlite_master
		where type = 'trigger' and lower(tbl_name) = lower(named) and instr(sql, 'blockd_log') > 0 and instr(sql, listed) > 0)), '') end
	from (select ? as place, ? as named, ? as listed))`

// Close ends the use of the source.
func (s *Source) Close() error { return nil }

// Fingerprint names the file, what its programs say that it is, and the query. A file that was put in the place of
// another is another one.
func (s *Source) Fingerprint(ctx context.Context) (print string, err error) {
	err = s.read(ctx, func(conn *sql.Conn) error {
		var id, schema int64
		err := conn.QueryRowContext(ctx, "select application_id, schema_version from pragma_application_id, pragma_schema_version").Scan(&id, &schema)
		if err != nil {
			return class(err)
		}
		print = fmt.Sprintf("sqlite %s inode %s application %d schema %d query %s", s.path, s.seen.inode(), id, schema, s.Reader.Identity())
		_, err = s.Reader.Triggers(ctx, conn) // of which the number of the schema tells, too
		return err
	})
	return print, err
}

// All implements mirror.Origin.
func (s *Source) All(ctx context.Context, yield func(mirror.Row) error) (mark mirror.Mark, err error) {
	began := time.Now()
	s.full = ""
	mark, err = s.Reader.All(ctx, yield)
	if err == nil && s.options.Changes == query.None {
		mark = mirror.Mark(began.UTC().Format(time.RFC3339Nano)) // unlike any before
		if s.seen.written().Before(began.Add(-settled)) {
			s.full, s.fullOf = mark, s.seen
		}
	}
	return mark, err
}

// settled is how old a file's time must be, so that a later write has another one.
const settled = 2 * time.Second

// Changes implements mirror.Origin. Without a log or a watermark it can tell that nothing has changed at all.
func (s *Source) Changes(ctx context.Context, since mirror.Mark, yield func(mirror.Change) error) (mark mirror.Mark, err error) {
	if s.options.Changes == query.None {
		if now, err := look(s.path); since == "" || since != s.full || err != nil || !s.fullOf.same(now) {
			return "", mirror.ErrTooOld
		}
		return since, nil
	}
	err = s.read(ctx, func(conn *sql.Conn) error {
		idle, err := s.Reader.Idle(ctx, conn, since)
		if mark = since; err == nil && !idle {
			mark, err = s.Reader.Changes(ctx, conn, since, yield)
		}
		return err
	})
	return mark, err
}

// watchEvery is how often Wait looks at the files' times.
const watchEvery = 250 * time.Millisecond

// Wait returns when the database has been written since the last read began.
func (s *Source) Wait(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for !s.changed() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// changed reports that the database has been written, or cannot be seen, since the last read began.
func (s *Source) changed() bool {
	now, err := look(s.path)
	return err != nil || !s.seen.same(now)
}

// read calls f in a read transaction, which sees one moment.
func (s *Source) read(ctx context.Context, f func(*sql.Conn) error) error {
	seen, err := look(s.path)
	if err != nil {
		return err
	}
	s.seen = seen
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	if err := query.On(ctx, db, class, []string{"begin"}, f); err != nil {
		return err
	}
	if seen.still() && s.changed() {
		return &mirror.Error{Class: mirror.ClassTimeout, Err: errors.New("a program opened the database while it was read")}
	}
	return nil
}

// open opens the file that was seen.
func (s *Source) open() (*sql.DB, error) {
	absolute, err := filepath.Abs(s.path)
	if err != nil {
		return nil, &mirror.Error{Class: mirror.ClassUnreachable, Err: err}
	}
	parameters := url.Values{"_busy_timeout": {strconv.FormatInt(busyTimeout.Milliseconds(), 10)}, "_dqs": {"0"}, "mode": {"ro"}}
	switch {
	case s.seen.still():
		parameters.Set("immutable", "1")
	case s.seen.ahead:
		parameters.Set("readonly_shm", "1")
	}
	address := url.URL{Scheme: "file", Path: absolute, RawQuery: parameters.Encode()}
	connector, err := driver.NewConnector(address.String())
	if err != nil {
		return nil, class(err)
	}
	return sql.OpenDB(connector), nil
}

// class gives an error of SQLite its class.
func class(err error) error {
	if e, ok := errors.AsType[*mirror.Error](err); ok {
		return e
	}
	word := mirror.ClassQuery
	text := strings.Join(strings.Fields(err.Error()), " ")
	if e, ok := errors.AsType[*driver.Error](err); ok {
		switch e.Code() & 0xff {
		case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
			word, text = mirror.ClassTimeout, text+"; hint: another program holds the database for itself; pragma journal_mode = wal lets it be read meanwhile"
		case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB, lib.SQLITE_FORMAT:
			word, text = mirror.ClassSchema, text+"; hint: sqlite3 FILE 'pragma integrity_check' tells more"
		case lib.SQLITE_READONLY:
			if e.Code() == lib.SQLITE_READONLY {
				break // the query writes
			}
			word, text = mirror.ClassUnreachable, text+"; hint: a program that wrote it has crashed; the next one that opens it for writing repairs it"
		case lib.SQLITE_CANTOPEN, lib.SQLITE_IOERR:
			word = mirror.ClassUnreachable
		case lib.SQLITE_PERM, lib.SQLITE_AUTH:
			word = mirror.ClassAuth
		case lib.SQLITE_SCHEMA:
			word = mirror.ClassSchema
		case lib.SQLITE_ERROR:
			if strings.Contains(text, "no such table") || strings.Contains(text, "no such column") {
				word = mirror.ClassSchema
			}
		}
	}
	return &mirror.Error{Class: word, Err: errors.New(text)}
}
