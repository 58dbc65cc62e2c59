// Package mysql reads a list from a table of MySQL or MariaDB.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	client "github.com/go-sql-driver/mysql"

	"blockd/sources/mirror"
	"blockd/sources/mirror/query"
)

const (
	dialTimeout = 10 * time.Second

	// readTimeout is how long a server may say nothing within an answer. A query that sorts a large table is silent
	// for so long before its first row.
	readTimeout = 2 * time.Minute
)

// Options are what a [list.source] of kind "mysql" says. DSN is
// mysql://USER:PASSWORD@HOST:PORT/DATABASE?tls=…&tls_ca=…, or with socket=PATH in place of the host.
type Options = query.Options

// Source is a query on a server of MySQL or MariaDB. It is for one goroutine.
type Source struct {
	*query.Reader
	options Options
	db      *sql.DB
}

// Open judges the options. There is no connection before the first read. An error names the key, and has no secret in
// it.
func Open(o Options) (*Source, error) {
	config, err := parse(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("dsn_file: %w", err)
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	library, err := client.NewConnector(config)
	if err != nil {
		return nil, errors.New("dsn_file: it cannot be used")
	}
	db := sql.OpenDB(connector{library})
	db.SetMaxOpenConns(1)
	s := &Source{options: o, db: db}
	s.Reader = query.NewReader(o, query.Dialect{
		Last:     "select rev from blockd_log_rev",
		Text:     "char",
		Now:      "now()",
		Triggers: "blockd_triggers(?, ?, ?)",
		Tables:   "blockd_tables(?, ?)",
		Explain:  "explain ",
		Class:    class,
	}, s.read)
	return s, nil
}

// Close ends the connection.
func (s *Source) Close() error { return s.db.Close() }

// Fingerprint names server, database and query. After a failover it is another one: what the old server had committed,
// the new one may not have.
func (s *Source) Fingerprint(ctx context.Context) (print string, err error) {
	err = s.read(ctx, func(conn *sql.Conn) error {
		var database sql.NullString
		if err := conn.QueryRowContext(ctx, "select database()").Scan(&database); err != nil {
			return class(err)
		}
		// MySQL has server_uuid. MariaDB has not, so the others name its server.
		rows, err := conn.QueryContext(ctx, "show variables where variable_name in ('server_uuid', 'server_id', 'hostname', 'port', 'datadir')")
		if err != nil {
			return class(err)
		}
		defer rows.Close()
		server := ""
		for rows.Next() {
			var name, value string
			if err := rows.Scan(&name, &value); err != nil {
				return class(err)
			}
			server += name + " " + value + " "
		}
		if err := rows.Err(); err != nil {
			return class(err)
		}
		// No trigger tells of TRUNCATE, nor of a table that was dropped and made anew.
		var made sql.NullString
		err = conn.QueryRowContext(ctx, "select max(create_time) from information_schema.tables where table_schema = database() and table_name = ?", s.table()).Scan(&made)
		if err != nil {
			return class(err)
		}
		armed, err := s.Reader.Triggers(ctx, conn)
		if _, unlogged := errors.AsType[*mirror.Unlogged](err); err != nil && !unlogged { // of which a poll tells
			return err
		}
		print = fmt.Sprintf("mysql %sdatabase %s made %s triggers%s query %s", server, database.String, made.String, armed, s.Reader.Identity())
		return nil
	})
	return print, err
}

// table is the name of the table that the query reads; "" if it is not known, or in another database.
func (s *Source) table() string {
	t, err := s.options.Table()
	if err != nil || strings.Contains(t.Name, ".") {
		return ""
	}
	return strings.Trim(t.Name, "`\"")
}

// Changes implements mirror.Origin.
func (s *Source) Changes(ctx context.Context, since mirror.Mark, yield func(mirror.Change) error) (mark mirror.Mark, err error) {
	if s.options.Changes == query.None {
		return "", mirror.ErrTooOld
	}
	idle := false // a poll that finds so costs one query
	err = query.On(ctx, s.db, class, nil, func(conn *sql.Conn) (err error) {
		idle, err = s.Idle(ctx, conn, since)
		return err
	})
	if err != nil || idle {
		return since, err
	}
	err = s.read(ctx, func(conn *sql.Conn) (err error) {
		mark, err = s.Reader.Changes(ctx, conn, since, yield)
		return err
	})
	return mark, err
}

// Wait returns with the context: these servers tell nobody of changes.
func (s *Source) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// read calls f in a read transaction, which sees one moment.
func (s *Source) read(ctx context.Context, f func(*sql.Conn) error) error {
	return query.On(ctx, s.db, class, []string{"set session transaction isolation level repeatable read", "start transaction with consistent snapshot, read only"}, f)
}
