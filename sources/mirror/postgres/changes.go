package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"blockd/sources/mirror"
	"blockd/sources/mirror/query"
)

// askedAt is how many entries one statement asks for.
const askedAt = 1000

// position is how far a log has been read: everything that a snapshot saw. The newest row that it saw is the witness
// that the log still reaches back so far, and that the server has not gone back to an earlier time.
type position struct {
	snapshot string // as PostgreSQL writes a pg_snapshot
	rev, at  string // of the newest row of the list: its number, and when it was written, in microseconds; "0" = there was none
}

func (p position) mark() mirror.Mark {
	return mirror.Mark(query.Log + " " + p.snapshot + " " + p.rev + " " + p.at)
}

// positionOf reads a mark; false for one of another way to find changes.
func positionOf(m mirror.Mark) (position, bool) {
	parts := strings.Split(string(m), " ")
	if len(parts) != 4 || parts[0] != query.Log {
		return position{}, false
	}
	for _, number := range parts[2:] {
		if _, err := strconv.ParseInt(number, 10, 64); err != nil {
			return position{}, false
		}
	}
	return position{parts[1], parts[2], parts[3]}, true
}

// mark is where the changes after the snapshot of this transaction begin.
func (s *Source) mark(ctx context.Context) (mirror.Mark, error) {
	switch s.options.Changes {
	case query.Log:
		p, err := s.position(ctx)
		return p.mark(), err
	case query.Watermark:
		value, err := s.highest(ctx)
		return query.Position{Value: value}.Mark(), err
	}
	return query.None, nil
}

// Changes reads again the entries that have changed.
func (s *Source) Changes(ctx context.Context, since mirror.Mark, yield func(mirror.Change) error) (mirror.Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, pollLimit)
	defer cancel()
	if err := s.connect(ctx); err != nil {
		return "", s.classed(err)
	}
	mark, err := s.changes(ctx, since, yield)
	return mark, s.classed(err)
}

func (s *Source) changes(ctx context.Context, since mirror.Mark, yield func(mirror.Change) error) (mirror.Mark, error) {
	if s.timed != nil && s.options.Changes != query.None {
		return "", s.timed
	}
	switch s.options.Changes {
	case query.Log:
		if p, ok := positionOf(since); ok {
			return s.logged(ctx, p, yield)
		}
	case query.Watermark:
		if w, ok := query.PositionOf(since); ok {
			return s.behind(ctx, w, yield)
		}
	default:
		return "", mirror.ErrTooOld
	}
	return "", mirror.TooOld("the mark is of another source")
}

// witnessTime is when a row of the log was written, as a position has it.
const witnessTime = "(extract(epoch from at) * 1000000)::bigint"

// position is what the snapshot of this transaction sees of the log.
//
// A server in recovery does not tell which transactions run. There, all from the oldest one on count as unseen, and
// are read twice.
func (s *Source) position(ctx context.Context) (p position, err error) {
	const sql = `select case when pg_is_in_recovery() then pg_snapshot_xmin(now)::text || ':' || pg_snapshot_xmin(now)::text || ':' else now::text end,
		coalesce(newest.rev, 0), coalesce(newest.at, 0)
		from pg_current_snapshot() as now
		left join lateral (select rev, ` + witnessTime + ` as at from blockd_log where list = $1::text order by rev desc limit 1) as newest on true`
	_, err = rows(ctx, s.conn, sql, []string{s.options.List}, 3, func(v []string) error {
		p = position{v[0], v[1], v[2]}
		return nil
	})
	return p, err
}

// unseen begins the condition of rows that a position has not seen: those of transactions that its snapshot did not
// see, and those that were numbered later. After a crash the server gives the numbers of transactions a second time
// that it had given and not yet written down; those of rows it does not.
const unseen = `from blockd_log where list = $1::text
	and (xid >= pg_snapshot_xmin($2::text::pg_snapshot) and not pg_visible_in_snapshot(xid, $2::text::pg_snapshot) or rev > $3::bigint)`

// logged yields what has changed since a position of the log.
func (s *Source) logged(ctx context.Context, since position, yield func(mirror.Change) error) (mirror.Mark, error) {
	at := []string{s.options.List, since.snapshot, since.rev}
	const idle = `with recursive asked(table_name, list) as (select $5::text, $6::text)` + triggersSQL + `select exists (select ` + unseen + `), $3::bigint = 0
		or exists (select from blockd_log where list = $1::text and rev = $3::bigint and ` + witnessTime + ` = $4::bigint), state, lacks, apart
		from told`
	fresh, reaches, now := false, false, triggers{}
	_, err := rows(ctx, s.conn, idle, append(at, since.at, s.table, inText(s.options.List)), 5, func(v []string) error {
		fresh, reaches, now = v[0] == "t", v[1] == "t", triggers{v[2], v[3], v[4]}
		return nil
	})
	if err == nil {
		err = now.judge(s.armed, &s.options)
	}
	switch {
	case err != nil:
		return "", err
	case !reaches:
		return "", mirror.TooOld("blockd_log has not got change %s as it was read: it was cleaned, reset, restored from a backup, or has lost its end in a failover", since.rev)
	case fresh && since.rev == "0": // what the log held before its first row is not known
		return "", mirror.ErrTooOld
	case !fresh:
		return since.mark(), nil
	}
	if err := s.begin(ctx); err != nil {
		return "", s.end(ctx, err)
	}
	next, changed, err := s.loggedKeys(ctx, at)
	return next.mark(), s.again(ctx, changed, err, yield)
}

// loggedKeys are those of the rows of the log that a position has not seen, and the next position.
func (s *Source) loggedKeys(ctx context.Context, at []string) (now position, changed []query.Key, err error) {
	if now, err = s.position(ctx); err != nil {
		return now, nil, err
	}
	columns, wide := "entry", 1
	if s.options.PerRecipient {
		columns, wide = "entry, owner", 2
	}
	_, err = rows(ctx, s.conn, fmt.Sprintf("select %s %s group by %[1]s order by min(rev) limit %[3]d", columns, unseen, query.MaxEntries+1), at, wide, func(v []string) error {
		// An empty entry says that anything may have changed, as TRUNCATE does; an empty owner, that triggers are
		// older than owners.
		if slices.Contains(v, "") {
			return query.ErrAnything
		}
		if len(changed) == query.MaxEntries {
			return s.options.TooMany()
		}
		key := query.Key{Entry: v[0]}
		if s.options.PerRecipient {
			key.Owner = v[1]
		}
		changed = append(changed, key)
		return nil
	})
	return now, changed, err
}

// again ends the transaction in which keys were found to have changed: it reads all rows of them, and yields.
func (s *Source) again(ctx context.Context, changed []query.Key, err error, yield func(mirror.Change) error) error {
	var found []mirror.Row
	if err == nil {
		found, err = s.rowsOf(ctx, changed)
	}
	if err := s.end(ctx, err); err != nil {
		return err
	}
	return query.Changes(changed, found, s.options.PerRecipient, yield)
}

// rowsOf reads all rows of some keys.
func (s *Source) rowsOf(ctx context.Context, keys []query.Key) (found []mirror.Row, err error) {
	if s.fields == nil {
		if s.fields, err = s.describe(ctx); err != nil {
			return nil, err
		}
	}
	columns, err := s.columns(s.fields)
	if err != nil {
		return nil, err
	}
	sql := "select * from " + s.inner() + " where " + s.ofKeys(columns)
	size := 0
	for part := range slices.Chunk(keys, askedAt) {
		fields, err := rows(ctx, s.conn, sql, s.arrays(part), len(s.fields), func(v []string) error {
			if columns.Gone(v) {
				return nil
			}
			for _, text := range v {
				size += len(text)
			}
			if size > query.MaxOctets {
				return s.options.TooMany()
			}
			found = append(found, columns.Row(v))
			return nil
		})
		if err != nil {
			return nil, err
		}
		if !slices.Equal(fields, s.fields) {
			s.fields = nil // the fingerprint is another one from now on
			return nil, mirror.TooOld("the columns of the query are others than were read")
		}
	}
	return found, nil
}

// The types of text, by their numbers in pg_type.
const (
	oidText    = 25
	oidVarchar = 1043
	oidBpchar  = 1042
	oidName    = 19
)

// ofKeys is the condition that a row has one of the keys of arrays.
func (s *Source) ofKeys(columns query.Columns) string {
	entry := s.among(s.fields[columns.Columns[0]], "$1")
	if !s.options.PerRecipient {
		return entry
	}
	// The owners of all keys first, which an index finds; each owner's entries are few.
	owner := s.fields[columns.Owner()]
	return fmt.Sprintf("%s and %s and (lower(q.%s::text), lower(q.%s::text)) in (select lower(o), lower(e) from unnest($2::text[], $1::text[]) as k(o, e))",
		s.among(owner, "$2"), entry, quoted(owner.name), quoted(s.fields[columns.Columns[0]].name)) // capitals: a column may not regard them
}

// arrays are the parameters of ofKeys.
func (s *Source) arrays(keys []query.Key) []string {
	entries, owners := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		entries[i], owners[i] = k.Entry, k.Owner
	}
	if !s.options.PerRecipient {
		return []string{array(entries)}
	}
	return []string{array(entries), array(owners)}
}

// among is the condition that a column is one of a parameter. Compared as text any type will do; a type of text can be
// found by an index.
func (s *Source) among(column field, parameter string) string {
	name := "q." + quoted(column.name)
	switch column.oid {
	case oidText, oidVarchar, oidName:
		return name + " = any(" + parameter + "::text[])"
	case oidBpchar:
		return name + " = any(" + parameter + "::text[]::bpchar[])"
	}
	if citext := s.citext[column.oid]; citext != "" {
		return name + " = any(" + parameter + "::text[]::" + citext + "[])"
	}
	return name + "::text = any(" + parameter + "::text[])"
}

// quoted is a name in SQL.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// array is an array of texts as PostgreSQL reads it.
func array(texts []string) string {
	var b strings.Builder
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	b.WriteByte('{')
	for i, t := range texts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		escape.WriteString(&b, t)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
