// Package postgres has the live entries of a fleet in a table of a PostgreSQL, version 14 or later.
//
// A change takes an advisory lock of the fleet's name, so revisions are committed in their order, and a reader that has all
// up to one of them misses none below it.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"blockd/index/live"
	"blockd/index/live/shared"
	mirror "blockd/sources/mirror/postgres"
)

// Engine is a shared.Engine.
type Engine struct {
	name   string
	config *pgconn.Config
	conn   *pgconn.PgConn // nil = not connected

	hinting sync.Mutex
	hints   *pgconn.PgConn
}

// Open judges the URL; it does not connect. An error never holds the URL.
func Open(dsn, name string) (*Engine, error) {
	config, err := mirror.ParseURL(dsn)
	if err != nil {
		return nil, err
	}
	return &Engine{name: name, config: config}, nil
}

// String names the server and the database.
func (e *Engine) String() string {
	return fmt.Sprintf("PostgreSQL at %s, database %s, name %s", e.config.Host, e.config.Database, e.name)
}

// Close ends the connections.
func (e *Engine) Close() {
	e.hangUp()
	e.hinting.Lock()
	defer e.hinting.Unlock()
	closing(e.hints)
	e.hints = nil
}

// Idle closes the connection for questions; the next one connects again. It is for the goroutine of the questions.
func (e *Engine) Idle() { e.hangUp() }

func closing(conn *pgconn.PgConn) {
	if conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(ctx)
	}
}

func (e *Engine) hangUp() {
	closing(e.conn)
	e.conn = nil
}

// DDL is what the database needs, for a role whose name is in the URL. The program executes it where that role may.
func DDL() string { return ddl }

const ddl = `-- Live entries and tokens of a fleet of blockd (live.shared = "postgres"). One table for all names.
create table if not exists blockd_live (
  name    text not null,              -- live.name: who shares these rows
  owner   text not null default '',   -- a mailbox or domain whose entry it is; '' = everybody's
  entry   text not null,              -- as a plain list has it; of a token its name
  scope   text not null,              -- exact, sub, tree, local; token = a token of the HTTP door; epoch = one row for each name
  action  text not null,              -- block or allow; of a token read or write
  why     text not null default '',
  by      text not null default '',
  created timestamptz not null default now(),
  expires timestamptz,                -- null = never
  gone    timestamptz,                -- when it was removed; the row stays for 7 days
  forced  boolean not null default false,
  proof   boolean not null default false,  -- an exception that wants SPF or DKIM
  rev     bigint not null,            -- of the last change; it rises with each
  xid     xid8 not null default pg_current_xact_id(),
  primary key (name, owner, entry, scope));
create sequence if not exists blockd_live_rev;
create index if not exists blockd_live_name_rev on blockd_live (name, rev);
create index if not exists blockd_live_expires on blockd_live (name, expires) where gone is null and expires is not null;
create table if not exists blockd_nodes (
  name   text not null,
  node   text not null,
  report text not null,
  until  timestamptz not null,        -- a node that has not reported by then is away
  primary key (name, node));
`

// connect makes sure that there is a connection, and that the database has what it needs.
func (e *Engine) connect(ctx context.Context) error {
	if e.conn != nil && !e.conn.IsClosed() {
		return nil
	}
	conn, err := pgconn.ConnectConfig(ctx, e.config)
	if err != nil {
		return mirror.Explain(e.config, err)
	}
	e.conn = conn
	if err := e.prepare(ctx); err != nil {
		e.hangUp()
		return mirror.Explain(e.config, err)
	}
	return nil
}

func (e *Engine) prepare(ctx context.Context) error {
	there := false
	err := e.query(ctx, "select to_regclass('blockd_live') is not null and to_regclass('blockd_nodes') is not null", nil, 1, func(v [][]byte) error {
		there = string(v[0]) == "t"
		return nil
	})
	if err != nil {
		return err
	}
	if !there {
		// Nodes that begin at once would meet in the catalogue.
		if err := e.exec(ctx, "begin; select pg_advisory_xact_lock(hashtext('blockd_live')); "+ddl+"commit"); err != nil {
			return fmt.Errorf("the table blockd_live is missing, and this role may not make it (blockd source ddl live prints it): %w", err)
		}
	}
	lock, unlock := e.locked()
	const epoch = `insert into blockd_live (name, entry, scope, action, why, rev) values ($1, '', 'epoch', '', replace(gen_random_uuid()::text, '-', ''), nextval('blockd_live_rev')) on conflict do nothing`
	if err := e.query(ctx, "select 1 from blockd_live where name = $1 and scope = 'epoch' and owner = '' and entry = ''", []string{e.name}, 1, func([][]byte) error {
		lock = ""
		return nil
	}); err != nil {
		return err
	}
	if lock == "" {
		return nil
	}
	if err := e.exec(ctx, lock); err != nil {
		return err
	}
	if err := e.query(ctx, epoch, []string{e.name}, 0, nil); err != nil {
		return err
	}
	return e.exec(ctx, unlock)
}

// locked are the statements around a change.
func (e *Engine) locked() (begin, commit string) {
	return "begin; select pg_advisory_xact_lock(hashtext(" + literal("blockd:"+e.name) + "))", "commit"
}

func (e *Engine) exec(ctx context.Context, sql string) error {
	return e.conn.Exec(ctx, sql).Close() // rows that it has all the same are not kept
}

// query executes a statement and gives each row, of so many columns, to use, as text; NULL is nil.
func (e *Engine) query(ctx context.Context, sql string, parameters []string, columns int, use func([][]byte) error) error {
	return read(e.conn.ExecParams(ctx, sql, octets(parameters), nil, nil, nil), columns, use)
}

func octets(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, t := range texts {
		all[i] = []byte(t)
	}
	return all
}

func read(result *pgconn.ResultReader, columns int, use func([][]byte) error) (err error) {
	for result.NextRow() {
		switch n := len(result.Values()); {
		case err != nil || use == nil:
		case n != columns:
			err = fmt.Errorf("the server has sent a row of %d columns in place of %d", n, columns)
		default:
			err = use(result.Values())
		}
	}
	if _, failed := result.Close(); failed != nil {
		return failed
	}
	return err
}

// asking runs ask with a connection. One that was lost since it was used last is made once more.
func (e *Engine) asking(ctx context.Context, again bool, ask func() error) error {
	open := func() bool { return e.conn != nil && !e.conn.IsClosed() }
	kept := open()
	if err := e.connect(ctx); err != nil {
		return err
	}
	err := ask()
	if err != nil && again && kept && !open() && ctx.Err() == nil {
		if err := e.connect(ctx); err != nil {
			return err
		}
		err = ask()
	}
	if ours(err) {
		return err
	}
	if err != nil {
		var answer *pgconn.PgError
		if !errors.As(err, &answer) || answer.Code == "42P01" || !open() || e.conn.TxStatus() != 'I' {
			e.hangUp() // a transaction that has failed ends with it, and a table that is missing is made again
		}
		return mirror.Explain(e.config, err)
	}
	return nil
}

// ours reports whether an error is not one of the server.
func ours(err error) bool {
	for _, e := range []error{live.ErrOwnerFull, live.ErrChanged, live.ErrYielded, live.ErrUnwritable, shared.ErrUnknown, shared.ErrRefused} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// columns are those of a row, as row reads them. Who writes rows by hand may give them a time that no number stands for, and texts of any length (shared.MaxField).
const columns = `left(owner, 20001), left(entry, 20001), left(scope, 20001), left(action, 20001), left(why, 20001), left(by, 20001), case when isfinite(created) then extract(epoch from created)::bigint else 0 end,
case when isfinite(expires) then ceil(extract(epoch from expires))::bigint when expires = '-infinity' then 1 else 0 end, forced,
case when gone is null then 0 when isfinite(gone) then extract(epoch from gone)::bigint else 1 end, rev, proof`

const wide = 12 // columns

func row(v [][]byte) (r live.Row, err error) {
	number := func(b []byte) int64 {
		n, bad := strconv.ParseInt(string(b), 10, 64)
		err = errors.Join(err, bad)
		return n
	}
	r = live.Row{Owner: string(v[0]), Entry: string(v[1]), Scope: string(v[2]), Action: string(v[3]), Why: string(v[4]), By: string(v[5]),
		Created: number(v[6]), Expires: number(v[7]), Forced: string(v[8]) == "t", Gone: number(v[9]), Rev: uint64(number(v[10])), Proof: string(v[11]) == "t"}
	if string(v[9]) != "0" {
		r.Gone = max(r.Gone, 1)
	}
	return r, err
}

// head is what each answer begins with: epoch, highest revision, time.
const head = `select coalesce((select why from blockd_live where name = $1 and owner = '' and entry = '' and scope = 'epoch'), ''),
	coalesce((select max(rev) from blockd_live where name = $1), 0), (extract(epoch from clock_timestamp()) * 1000000)::bigint`

func readHead(v [][]byte) (epoch string, rev uint64, now time.Time, err error) {
	rev, err = strconv.ParseUint(string(v[1]), 10, 64)
	micro, bad := strconv.ParseInt(string(v[2]), 10, 64)
	if err = errors.Join(err, bad); len(v[0]) == 0 {
		err = errors.Join(err, errors.New("the table blockd_live was emptied"))
	}
	return string(v[0]), rev, time.UnixMicro(micro), err
}

// Changes is one question in one go.
func (e *Engine) Changes(ctx context.Context, since uint64, most int) (p shared.Page, err error) {
	err = e.asking(ctx, true, func() error {
		p = shared.Page{}
		var batch pgconn.Batch
		batch.ExecParams(head, octets([]string{e.name}), nil, nil, nil)
		batch.ExecParams("select "+columns+" from blockd_live where name = $1 and rev > $2::bigint and scope <> 'epoch' order by rev limit $3::int",
			octets([]string{e.name, strconv.FormatUint(since, 10), strconv.Itoa(most + 1)}), nil, nil, nil)
		results, n := e.conn.ExecBatch(ctx, &batch), 0
		var failed error
		for ; results.NextResult(); n++ {
			failed = errors.Join(failed, read(results.ResultReader(), []int{3, wide}[min(n, 1)], func(v [][]byte) (err error) {
				if n == 0 {
					p.Epoch, p.Rev, p.Now, err = readHead(v)
					return err
				}
				if len(p.Rows) > most {
					return fmt.Errorf("the server has sent more than the %d rows that were asked for", most+1)
				}
				r, err := row(v)
				p.Rows = append(p.Rows, r)
				return err
			}))
		}
		if err := results.Close(); err != nil {
			return err
		}
		if p.More = len(p.Rows) > most; p.More {
			p.Rows = p.Rows[:most]
		}
		if n := len(p.Rows); n > 0 {
			p.To = p.Rows[n-1].Rev
		}
		if failed != nil {
			e.hangUp()
		}
		return failed
	})
	return p, err
}

// All reads the table in one moment of it.
func (e *Engine) All(ctx context.Context, each func([]live.Row, []string) error) error {
	const some = 1000
	return e.asking(ctx, false, func() error {
		rows := make([]live.Row, 0, some)
		err := e.query(ctx, "select "+columns+" from blockd_live where name = $1 and scope <> 'epoch'", []string{e.name}, wide, func(v [][]byte) error {
			r, err := row(v)
			if err != nil {
				return err
			}
			if rows = append(rows, r); len(rows) < some {
				return nil
			}
			err = each(rows, nil)
			rows = rows[:0]
			return err
		})
		if err == nil && len(rows) > 0 {
			err = each(rows, nil)
		}
		return err
	})
}

// State counts the entries.
func (e *Engine) State(ctx context.Context) (s shared.State, err error) {
	err = e.asking(ctx, true, func() error {
		return e.query(ctx, head+", (select count(*) from blockd_live where name = $1 and gone is null and scope not in ('epoch', 'token'))", []string{e.name}, 4, func(v [][]byte) (err error) {
			if s.Epoch, s.Rev, s.Now, err = readHead(v); err != nil {
				return err
			}
			s.Count, err = strconv.ParseInt(string(v[3]), 10, 64)
			return err
		})
	})
	return s, err
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
