// Package postgres reads a list whose truth is in a PostgreSQL, version 14 or later.
//
// A full read is one COPY in one snapshot. Changes are found by a log, a table that triggers fill, or by a column that
// grows with each change of a row. A role that may do nothing but read is enough.
package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"blockd/sources/mirror"
	"blockd/sources/mirror/query"
)

// Options are what a [list.source] of kind "postgres" says. DSN is
// postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETER=VALUE, with the parameters of libpq.
type Options = query.Options

const (
	connectLimit = 10 * time.Second // if the URL does not say otherwise
	pollLimit    = time.Minute      // of everything but a full read
	stallLimit   = 2 * time.Minute  // of a full read without a row

	// maxMessage bounds a message of the server, and so a row. PostgreSQL itself bounds it at 1 GiB.
	maxMessage = 32 << 20

	// maxAnswer bounds the rows of an answer that is kept in memory. What a COPY sends is not.
	maxAnswer = 64 << 20
)

// Source is a mirror.Origin. It connects when it is first asked, and again after an error. One goroutine uses it.
type Source struct {
	options Options
	config  *pgconn.Config
	table   string            // whose triggers fill the log; "" = who has made them knows where they belong
	timed   error             // of query.Followed
	conn    *pgconn.PgConn    // nil = not connected
	hints   *pgconn.PgConn    // that listens; nil = not connected
	fields  []field           // of the query, as this connection has last described it
	citext  map[uint32]string // the names of those types of the keys that are citext
	armed   string            // triggers.state, as the last Fingerprint has it
	finding string            // the name of the prepared statement of Find
	seen    query.Seen
	stall   time.Duration
}

// field is a column of a result.
type field struct {
	name string
	oid  uint32 // of its type
}

// Open judges the options; it does not connect. An error names the key, and never holds the URL.
func Open(o Options) (*Source, error) {
	if err := query.Judge(o.Query, o.Changes, o.Watermark); err != nil {
		return nil, err
	}
	config, err := parse(o.DSN)
	if err != nil {
		return nil, err
	}
	o.Query = query.Text(o.Query)
	form, _ := query.FormOf(o.Query)
	return &Source{options: o, config: config, stall: stallLimit, table: form.Table, timed: query.Followed(o.Query, o.List)}, nil
}

// Close ends the connections.
func (s *Source) Close() error {
	s.conn, s.hints = hangUp(s.conn), hangUp(s.hints)
	return nil
}

func hangUp(conn *pgconn.PgConn) *pgconn.PgConn {
	if conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(ctx)
	}
	return nil
}

// parse reads the URL. What the library says of one that it cannot read may quote the password, so it is not repeated.
func parse(dsn string) (*pgconn.Config, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return nil, errors.New("dsn: want postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	_, text, has := strings.Cut(dsn, "?")
	parameters, err := url.ParseQuery(text)
	if err != nil {
		return nil, errors.New("dsn: the parameters behind the ? are not NAME=VALUE&NAME=VALUE")
	}
	config, err := pgconn.ParseConfig(dsn)
	if err == nil && !parameters.Has("sslmode") && !local(config) {
		if has {
			dsn += "&sslmode=verify-full"
		} else {
			dsn += "?sslmode=verify-full"
		}
		config, err = pgconn.ParseConfig(dsn)
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("dsn: %w", path)
	}
	if err != nil {
		return nil, errors.New("dsn: not a URL that PostgreSQL has; want postgres://USER:PASSWORD@HOST:PORT/DATABASE, with %40 for an @ in a password, and %2F for a /")
	}
	if !parameters.Has("connect_timeout") {
		config.ConnectTimeout = connectLimit
	}
	config.MaxProtocolMessageBodyLen, config.BuildFrontend = maxMessage, frontend
	for name, value := range map[string]string{"timezone": "UTC", "datestyle": "ISO", "client_encoding": "UTF8"} {
		config.RuntimeParams[name] = value
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "blockd"
	}
	return config, nil
}

// ParseURL reads the URL of a database, for other programs' tables too. An error never holds the URL. Within a network
// TLS is checked unless the URL says otherwise.
func ParseURL(dsn string) (*pgconn.Config, error) { return parse(dsn) }

// Explain gives an error of a connection that ParseURL's result has made its class, and words for people.
func Explain(config *pgconn.Config, err error) error { return (&Source{config: config}).classed(err) }

// local reports whether all hosts are this machine, where TLS protects nothing.
func local(c *pgconn.Config) bool {
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	return !slices.ContainsFunc(hosts, func(host string) bool {
		if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
			return false
		}
		ip, err := netip.ParseAddr(host)
		return err != nil || !ip.IsLoopback()
	})
}

// dial makes a connection.
func (s *Source) dial(ctx context.Context) (*pgconn.PgConn, error) {
	conn, err := pgconn.ConnectConfig(ctx, s.config)
	if err != nil {
		return nil, err
	}
	if conn.ParameterStatus("server_encoding") == "SQL_ASCII" {
		// Such a database may hold any octets. With another encoding the server refuses the whole result for one of
		// them.
		if err := execute(ctx, conn, "set client_encoding = 'SQL_ASCII'"); err != nil {
			return hangUp(conn), err
		}
	}
	return conn, nil
}

// connect makes sure that there is a connection.
func (s *Source) connect(ctx context.Context) error {
	if s.conn != nil && !s.conn.IsClosed() {
		return nil
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	if err := s.refusePooler(ctx, conn); err != nil {
		hangUp(conn)
		return err
	}
	s.conn, s.fields = conn, nil
	return nil
}

// refusePooler refuses a pooler that gives each transaction another connection. There the channel of NOTIFY is
// listened to by a stranger, and what a session has set holds for others.
//
// A pooler makes up the number of the process that a client is told. One that gives a connection away between
// transactions gives that of the first client to the second.
func (s *Source) refusePooler(ctx context.Context, first *pgconn.PgConn) error {
	told := strconv.FormatUint(uint64(first.PID()), 10)
	one, err := process(ctx, first)
	if err != nil || one == told {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	second, err := s.dial(ctx)
	if err != nil {
		return nil // a pool of one connection, which the first client keeps
	}
	defer hangUp(second)
	if shared, err := sharesConnections(ctx, first, one, second); err != nil || !shared {
		return err
	}
	return &mirror.Error{Class: mirror.ClassRefused, Err: errors.New("a pooler shares its connections between transactions (pgbouncer: pool_mode = transaction); give the address of the server itself, or of a pool with pool_mode = session")}
}

// sharesConnections reports whether a second client meets the connection that the first one had, whose process was one.
func sharesConnections(ctx context.Context, first *pgconn.PgConn, one string, second *pgconn.PgConn) (bool, error) {
	err := execute(ctx, second, "begin") // holds a connection; pool_mode = statement has no transactions
	if _, refused := errors.AsType[*pgconn.PgError](err); err != nil {
		return refused, nil
	}
	other, err := process(ctx, second)
	if err != nil {
		return false, nil // nothing is known of it
	}
	again, err := process(ctx, first)
	return one == other || one != again, err
}

// process is the number of the server's process behind a connection.
func process(ctx context.Context, conn *pgconn.PgConn) (pid string, err error) {
	_, err = rows(ctx, conn, "select pg_backend_pid()", nil, 1, func(values []string) error {
		pid = values[0]
		return nil
	})
	return pid, err
}

// Fingerprint names the server, its history and database, what the role sees there, and the query with its columns. A
// server that was promoted, or restored to an earlier time, has another one.
func (s *Source) Fingerprint(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pollLimit)
	defer cancel()
	kept := s.conn != nil && !s.conn.IsClosed()
	print, err := s.fingerprint(ctx)
	if err != nil && kept && s.conn.IsClosed() { // it was lost since the last poll, which says nothing about the server now
		print, err = s.fingerprint(ctx)
	}
	return print, s.classed(err)
}

func (s *Source) fingerprint(ctx context.Context) (string, error) {
	if err := s.connect(ctx); err != nil {
		return "", err
	}
	server, err := s.server(ctx)
	if err != nil {
		return "", err
	}
	if s.fields == nil {
		if s.fields, err = s.describe(ctx); err != nil {
			return "", err
		}
	}
	now, err := s.triggers(ctx)
	if err != nil {
		return "", err
	}
	s.armed = now.state
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q", s.options.Query, s.options.List)
	for _, f := range s.fields {
		fmt.Fprintf(hash, " %q %d", f.name, f.oid)
	}
	if s.armed != "" {
		server += " triggers " + s.armed
	}
	return fmt.Sprintf("postgres %s %x", server, hash.Sum(nil)[:8]), nil
}

// server names the server, its timeline, the database, and where the role looks for tables.
func (s *Source) server(ctx context.Context) (text string, err error) {
	const own = `(select oid from pg_database where datname = current_database()), current_user, array_to_string(current_schemas(false), ',')`
	const all = `select (select system_identifier from pg_control_system()),
		case when pg_is_in_recovery() then (select lpad(upper(to_hex(timeline_id)), 8, '0') from pg_control_checkpoint())
		else left(pg_walfile_name(pg_current_wal_lsn()), 8) end, ` + own
	keep := func(values []string) error {
		text = strings.Join(values, " ")
		return nil
	}
	_, err = rows(ctx, s.conn, all, nil, 5, keep)
	if _, refused := errors.AsType[*pgconn.PgError](err); refused && !s.conn.IsClosed() { // a service that hides its machines
		_, err = rows(ctx, s.conn, "select "+own, nil, 3, keep)
	}
	return text, err
}

// inner is the query as a table named q.
func (s *Source) inner() string { return "(\n" + s.options.Query + "\n) as q" }

// describe asks for the columns of the query. In a transaction they cannot change from then on.
func (s *Source) describe(ctx context.Context) ([]field, error) {
	d, err := s.conn.Prepare(ctx, "", "select * from "+s.inner(), nil)
	if err != nil {
		return nil, err
	}
	fields := fieldsOf(d.Fields)
	columns, err := s.columns(fields)
	if err != nil {
		return nil, err
	}
	s.citext = map[uint32]string{}
	for _, at := range []int{columns.Columns[0], columns.Owner()} {
		if at >= 0 {
			if s.citext[fields[at].oid], err = s.ofCitext(ctx, fields[at].oid); err != nil {
				return nil, err
			}
		}
	}
	return fields, nil
}

// ofCitext is the name of the type citext if a type is that, which compares texts without regard to capitals; else it
// is "".
func (s *Source) ofCitext(ctx context.Context, oid uint32) (name string, err error) {
	const firstOfOthers = 16384 // PostgreSQL's own types have lower numbers
	if oid < firstOfOthers {
		return "", nil
	}
	_, err = rows(ctx, s.conn, "select oid::regtype::text from pg_type where oid = $1::oid and typname = 'citext'",
		[]string{strconv.FormatUint(uint64(oid), 10)}, 1, func(v []string) error {
			name = v[0]
			return nil
		})
	return name, err
}

func fieldsOf(descriptions []pgconn.FieldDescription) []field {
	fields := make([]field, len(descriptions))
	for i, d := range descriptions {
		fields[i] = field{d.Name, d.DataTypeOID}
	}
	return fields
}

func (s *Source) columns(fields []field) (query.Columns, error) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	c, err := query.NewColumns(names, s.options.Watermark)
	if err == nil {
		err = query.NeedOwner(c.Columns, s.options.PerRecipient)
	}
	return c, err
}

// begin begins a transaction that sees one moment.
func (s *Source) begin(ctx context.Context) error {
	return execute(ctx, s.conn, "begin isolation level repeatable read read only")
}

// end ends a transaction; one that has failed ends with its connection.
func (s *Source) end(ctx context.Context, err error) error {
	if err == nil {
		err = execute(ctx, s.conn, "commit")
	}
	if err != nil {
		s.conn = hangUp(s.conn)
	}
	return err
}

// execute executes a statement without parameters and rows.
func execute(ctx context.Context, conn *pgconn.PgConn, sql string) error {
	return conn.Exec(ctx, sql).Close() // rows that it has all the same are not kept
}

// rows executes a statement, and gives the rows of its result, of so many columns, to use, as text; NULL is "".
func rows(ctx context.Context, conn *pgconn.PgConn, sql string, parameters []string, columns int, use func([]string) error) ([]field, error) {
	values := make([][]byte, len(parameters))
	for i, p := range parameters {
		values[i] = []byte(p)
	}
	fields, _, err := read(conn.ExecParams(ctx, sql, values, nil, nil, nil), columns, use)
	return fields, err
}

// read gives the rows of a result to use, as rows does. The tag is what the server says of the whole.
func read(result *pgconn.ResultReader, columns int, use func([]string) error) (_ []field, tag pgconn.CommandTag, err error) {
	octets := 0
	for result.NextRow() {
		if err != nil {
			continue
		}
		row := make([]string, len(result.Values()))
		for i, v := range result.Values() {
			row[i] = string(v)
			octets += len(v)
		}
		switch {
		case len(row) != columns && len(row) == len(result.FieldDescriptions()):
			err = &mirror.Error{Class: mirror.ClassSchema, Err: fmt.Errorf("the result has %d columns in place of %d", len(row), columns)}
		case len(row) != columns:
			err = &mirror.Error{Class: mirror.ClassQuery, Err: fmt.Errorf("the server has sent a row of %d columns in place of %d", len(row), columns)}
		case octets > maxAnswer:
			err = &mirror.Error{Class: mirror.ClassRows, Err: fmt.Errorf("the server has sent rows of more than %d octets", maxAnswer)}
		default:
			err = use(row)
		}
	}
	fields := fieldsOf(result.FieldDescriptions())
	tag, failed := result.Close()
	if failed != nil {
		return nil, tag, failed
	}
	return fields, tag, err
}
