package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"blockd/index/live"
	"blockd/index/live/shared"
)

// identity says which row of a name it is.
type identity struct{ owner, entry, scope string }

func of(r *live.Row) identity { return identity{r.Owner, r.Entry, r.Scope} }

// Write makes changes in one transaction, which holds the lock of the name.
func (e *Engine) Write(ctx context.Context, wants []live.Want, terms live.Terms) (w shared.Written, err error) {
	sent := false // the commit, so that its outcome is unknown if no answer comes
	answered := false
	err = e.asking(ctx, true, func() error {
		if sent {
			return shared.ErrUnknown
		}
		w, err = e.write(ctx, wants, terms, &sent)
		var answer *pgconn.PgError
		switch {
		case errors.Is(err, live.ErrOwnerFull) || errors.Is(err, live.ErrChanged):
			return errors.Join(err, e.exec(ctx, "rollback"))
		case errors.As(err, &answer):
			answered = true
			if forGood(answer.Code) {
				return errors.Join(fmt.Errorf("%w: %s (SQLSTATE %s)", shared.ErrRefused, answer.Message, answer.Code), e.exec(ctx, "rollback"))
			}
		}
		return err
	})
	if err != nil && sent && !answered {
		err = fmt.Errorf("%w: %w", shared.ErrUnknown, err)
	}
	return w, err
}

// forGood reports whether a code of PostgreSQL says that the values of a statement are at fault: octets that are no text, a constraint,
// an index that cannot hold them, a trigger that says no.
func forGood(code string) bool {
	return len(code) == 5 && (code[:2] == "22" || code[:2] == "23" || code[:2] == "54" || code[:2] == "P0")
}

func (e *Engine) write(ctx context.Context, wants []live.Want, terms live.Terms, sent *bool) (w shared.Written, err error) {
	begin, commit := e.locked()
	if err := e.exec(ctx, begin); err != nil {
		return w, err
	}
	now, is, err := e.current(ctx, wants)
	if err != nil {
		return w, err
	}
	if err := e.holds(ctx, terms.Holding); err != nil {
		return w, err
	}
	w = shared.Written{Given: make([]live.Given, len(wants)), Replicas: -1}
	var batch pgconn.Batch
	var changed []int // of wants, in the order of batch
	more := map[string]int{}
	for i := range wants {
		row, given := wants[i].Row, &w.Given[i]
		given.Replicas = -1
		was, there := is[of(&row)]
		if there = there && was.Gone == 0; there && (was.Expires == 0 || was.Expires > now.Unix()) {
			given.Was = &was
		}
		var rev uint64
		if given.Was != nil {
			rev = was.Rev
		}
		if want := wants[i].IfRev; want != nil && *want != rev {
			given.Conflict = true
			return w, e.exec(ctx, "rollback")
		}
		if row.Gone != 0 && !there || row.Gone == 0 && given.Was != nil && given.Was.SameContent(&row) {
			continue
		}
		if row.Owner != "" && row.Gone == 0 && given.Was == nil {
			more[row.Owner]++
		} else if row.Owner != "" && row.Gone != 0 && given.Was != nil {
			more[row.Owner]--
		}
		batch.ExecParams(upsert, octets([]string{e.name, row.Owner, row.Entry, row.Scope, row.Action, row.Why, row.By, strconv.FormatInt(row.Created, 10),
			strconv.FormatInt(row.Expires, 10), strconv.FormatBool(row.Forced), strconv.FormatBool(row.Gone != 0), strconv.FormatBool(row.Proof)}), nil, nil, nil)
		changed = append(changed, i)
		is[of(&row)] = row // a later change of this call meets it
	}
	if err := e.owners(ctx, more, terms.MostOfOwner); err != nil {
		return w, err
	}
	if len(changed) == 0 {
		return w, e.exec(ctx, "rollback")
	}
	batch.ExecParams("select pg_notify('blockd_live', $1)", octets([]string{e.name}), nil, nil, nil)
	results, n := e.conn.ExecBatch(ctx, &batch), 0
	for ; results.NextResult(); n++ {
		if failed := read(results.ResultReader(), 1, func(v [][]byte) error {
			if n >= len(changed) {
				return nil
			}
			rev, err := strconv.ParseUint(string(v[0]), 10, 64)
			w.Given[changed[n]].Rev = rev
			return err
		}); err == nil {
			err = failed
		}
	}
	if failed := results.Close(); failed != nil {
		return w, failed
	}
	if err != nil {
		return w, err
	}
	*sent = true
	return w, e.exec(ctx, commit)
}

const upsert = `insert into blockd_live as l (name, owner, entry, scope, action, why, by, created, expires, forced, gone, rev, proof)
	values ($1, $2, $3, $4, $5, $6, $7, to_timestamp($8::bigint), case when $9::bigint > 0 then to_timestamp($9::bigint) end, $10::boolean, case when $11::boolean then now() end, nextval('blockd_live_rev'), $12::boolean)
	on conflict (name, owner, entry, scope) do update set action = case when excluded.gone is null then excluded.action else l.action end,
		why = case when excluded.gone is null then excluded.why when l.scope = 'token' then l.why else '' end, by = excluded.by, created = case when excluded.gone is null then excluded.created else l.created end,
		expires = excluded.expires, forced = excluded.forced, proof = excluded.proof, gone = excluded.gone, rev = excluded.rev, xid = pg_current_xact_id()
	returning rev`

// current returns the engine's time, and the rows that changes are about.
func (e *Engine) current(ctx context.Context, wants []live.Want) (now time.Time, is map[identity]live.Row, err error) {
	is = make(map[identity]live.Row, len(wants))
	var owners, entries, scopes []string
	for i := range wants {
		r := &wants[i].Row
		owners, entries, scopes = append(owners, r.Owner), append(entries, r.Entry), append(scopes, r.Scope)
	}
	err = e.query(ctx, "select "+columns+" from blockd_live where name = $1 and (owner, entry, scope) in (select * from unnest($2::text[], $3::text[], $4::text[]))",
		[]string{e.name, array(owners), array(entries), array(scopes)}, wide, func(v [][]byte) error {
			if len(is) > len(wants) {
				return errors.New("the server has sent rows of other entries")
			}
			r, err := row(v)
			is[of(&r)] = r
			return err
		})
	if err != nil {
		return now, nil, err
	}
	err = e.query(ctx, "select extract(epoch from clock_timestamp())::bigint", nil, 1, func(v [][]byte) error {
		seconds, err := strconv.ParseInt(string(v[0]), 10, 64)
		now = time.Unix(seconds, 0)
		return err
	})
	return now, is, err
}

// holds refuses changes of an owner who has other entries than the caller knows.
func (e *Engine) holds(ctx context.Context, h *live.Holding) error {
	if h == nil {
		return nil
	}
	return e.query(ctx, `select count(*), coalesce(sum(rev), 0)::bigint from blockd_live
		where name = $1 and owner = $2 and gone is null and scope <> 'token' and (expires is null or expires > clock_timestamp())`, []string{e.name, h.Owner}, 2, func(v [][]byte) error {
		if string(v[0]) != strconv.Itoa(h.Count) || string(v[1]) != strconv.FormatUint(h.Sum, 10) {
			return live.ErrChanged
		}
		return nil
	})
}

// owners refuses changes that would give an owner too many entries.
func (e *Engine) owners(ctx context.Context, more map[string]int, most int) error {
	var names []string
	for owner, n := range more {
		if n > 0 && most > 0 {
			names = append(names, owner)
		}
	}
	if len(names) == 0 {
		return nil
	}
	var full error
	has := func(owner string, n int) {
		if n+more[owner] > most {
			full = fmt.Errorf("%w: %s has %d, and may have %d (max_entries_per_owner)", live.ErrOwnerFull, owner, n, most)
		}
	}
	for _, owner := range names {
		has(owner, 0)
	}
	err := e.query(ctx, "select owner, count(*) from blockd_live where name = $1 and owner = any($2::text[]) and gone is null and scope <> 'token' and (expires is null or expires > now()) group by owner",
		[]string{e.name, array(names)}, 2, func(v [][]byte) error {
			n, err := strconv.Atoi(string(v[1]))
			has(string(v[0]), n)
			return err
		})
	if err != nil {
		return err
	}
	return full
}

// array is a text[] as PostgreSQL reads it.
func array(texts []string) string {
	var b strings.Builder
	for i, t := range texts {
		b.WriteString([]string{"{", ","}[min(i, 1)])
		b.WriteByte('"')
		b.WriteString(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(t))
		b.WriteByte('"')
	}
	if len(texts) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.String()
}

// Sweep removes what has ended, and forgets what was removed a week ago. The newest row of a name stays: the highest revision never goes back.
func (e *Engine) Sweep(ctx context.Context) error {
	return e.asking(ctx, true, func() error {
		due := false
		err := e.query(ctx, "select exists (select from blockd_live where name = $1 and gone is null and expires <= clock_timestamp()) or exists (select from blockd_live where name = $1 and gone < now() - $2::interval)",
			[]string{e.name, fmt.Sprintf("%d seconds", int(shared.KeepGone.Seconds()))}, 1, func(v [][]byte) error {
				due = string(v[0]) == "t"
				return nil
			})
		if err != nil || !due {
			return err
		}
		begin, commit := e.locked()
		if err := e.exec(ctx, begin); err != nil {
			return err
		}
		for _, sql := range []string{
			"update blockd_live set gone = now(), by = 'blockd', rev = nextval('blockd_live_rev'), xid = pg_current_xact_id() where name = $1 and gone is null and expires <= clock_timestamp()",
			"delete from blockd_live where name = $1 and gone < now() - '" + fmt.Sprintf("%d seconds", int(shared.KeepGone.Seconds())) + "'::interval and rev < (select max(rev) from blockd_live where name = $1)",
			"select pg_notify('blockd_live', $1)",
		} {
			if err := e.query(ctx, sql, []string{e.name}, 0, nil); err != nil {
				return err
			}
		}
		return e.exec(ctx, commit)
	})
}

// Wait listens to what Write and Sweep notify.
func (e *Engine) Wait(ctx context.Context) error {
	e.hinting.Lock()
	defer e.hinting.Unlock()
	if e.hints == nil || e.hints.IsClosed() {
		conn, err := pgconn.ConnectConfig(ctx, e.config)
		if err == nil {
			if err = conn.Exec(ctx, "listen blockd_live").Close(); err != nil {
				closing(conn)
			}
		}
		if err == nil {
			e.hints = conn
			return nil // nothing has told of what came before
		}
		<-ctx.Done()
		return ctx.Err()
	}
	if err := e.hints.WaitForNotification(ctx); err == nil {
		return nil
	}
	if ctx.Err() == nil {
		closing(e.hints)
		e.hints = nil
		<-ctx.Done()
	}
	return ctx.Err()
}

// Report keeps a node's report.
func (e *Engine) Report(ctx context.Context, node string, report []byte, life time.Duration) error {
	return e.asking(ctx, true, func() error {
		err := e.query(ctx, `insert into blockd_nodes (name, node, report, until) values ($1, $2, $3, now() + $4::interval)
			on conflict (name, node) do update set report = excluded.report, until = excluded.until`,
			[]string{e.name, node, string(report), fmt.Sprintf("%d milliseconds", life.Milliseconds())}, 0, nil)
		if err != nil {
			return err
		}
		return e.query(ctx, "delete from blockd_nodes where name = $1 and until < now() - interval '1 day'", []string{e.name}, 0, nil)
	})
}

// Reports returns the reports of the nodes that live.
func (e *Engine) Reports(ctx context.Context) (all map[string][]byte, err error) {
	err = e.asking(ctx, true, func() error {
		all = map[string][]byte{}
		octets := 0
		return e.query(ctx, "select node, report from blockd_nodes where name = $1 and until > now() and octet_length(node) < 1000 and octet_length(report) <= $2::int order by until desc limit $3::int",
			[]string{e.name, strconv.Itoa(shared.MaxReport), strconv.Itoa(shared.MostReports)}, 2, func(v [][]byte) error {
				if octets += len(v[0]) + len(v[1]); octets > shared.MaxAllReports {
					return fmt.Errorf("the reports of nodes have more than %d octets", shared.MaxAllReports)
				}
				all[string(v[0])] = append([]byte(nil), v[1]...)
				return nil
			})
	})
	return all, err
}

var _ shared.Engine = (*Engine)(nil)
