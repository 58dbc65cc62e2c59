package postgres

import (
	"context"
	"fmt"
	"strconv"

	"blockd/sources/mirror"
	"blockd/sources/mirror/query"
)

// The types that a watermark may have, by their numbers in pg_type.
const (
	oidTimestamptz = 1184
	oidTimestamp   = 1114
	oidInt8        = 20
	oidInt4        = 23
)

// column is the column of the watermark, and the condition of the rows from $1 less the overlap on.
func (s *Source) column(ctx context.Context) (oid uint32, name, from string, err error) {
	if s.fields == nil {
		if s.fields, err = s.describe(ctx); err != nil {
			return 0, "", "", err
		}
	}
	columns, err := s.columns(s.fields)
	if err != nil {
		return 0, "", "", err
	}
	f := s.fields[columns.Watermark]
	name = "q." + quoted(f.name)
	seconds := strconv.FormatInt(int64(s.options.Overlap.Seconds()), 10)
	switch f.oid {
	case oidTimestamptz:
		from = "$1::timestamptz - interval '" + seconds + " seconds'"
	case oidTimestamp:
		from = "$1::timestamp - interval '" + seconds + " seconds'"
	case oidInt8, oidInt4: // seconds, or milliseconds
		from = fmt.Sprintf("$1::bigint - case when $1::bigint < 1000000000000 then %s else %d end", seconds, s.options.Overlap.Milliseconds())
	default:
		return 0, "", "", &mirror.Error{Class: mirror.ClassSchema, Err: fmt.Errorf("the watermark %q is neither a timestamp nor an integer", s.options.Watermark)}
	}
	return f.oid, name, "(" + name + " >= " + from + " or " + name + " is null)", nil // who has no time may have changed at any
}

// highest is the highest watermark now. A row from the future does not hide those that come before that time.
func (s *Source) highest(ctx context.Context) (value string, err error) {
	oid, name, _, err := s.column(ctx)
	if err != nil {
		return "", err
	}
	highest := "max(" + name + ")"
	now := map[uint32]string{
		oidTimestamptz: "now()", oidTimestamp: "localtimestamp",
		// A number is a time if it could be one of this century, in seconds or milliseconds.
		oidInt8: "case when " + highest + " between 1000000000 and 99999999999 then extract(epoch from now())::bigint" +
			" when " + highest + " between 1000000000000 and 99999999999999 then (extract(epoch from now()) * 1000)::bigint end",
		oidInt4: "case when " + highest + " > 1000000000 then extract(epoch from now())::bigint end",
	}[oid]
	highest = "case when " + highest + " is not null then least(" + highest + ", " + now + ") end"
	_, err = rows(ctx, s.conn, "select "+highest+" from "+s.inner(), nil, 1, func(v []string) error {
		value = v[0]
		return nil
	})
	return value, err
}

// behind yields the entries of rows that have changed since a watermark, or not long before it.
func (s *Source) behind(ctx context.Context, since query.Position, yield func(mirror.Change) error) (mirror.Mark, error) {
	if err := s.begin(ctx); err != nil {
		return "", s.end(ctx, err)
	}
	changed, err := s.changedRows(ctx, since)
	if err == nil && len(changed) == 0 {
		s.seen.End(since.Mark())
		return since.Mark(), s.end(ctx, nil)
	}
	next := query.Position{Polls: since.Polls + 1}
	if err == nil {
		next.Value, err = s.highest(ctx)
	}
	if err := s.again(ctx, changed, err, yield); err != nil {
		return "", err
	}
	s.seen.End(next.Mark())
	return next.Mark(), nil
}

// changedRows are the keys of rows that the poll before has not read.
func (s *Source) changedRows(ctx context.Context, since query.Position) ([]query.Key, error) {
	_, _, from, err := s.column(ctx)
	if err != nil {
		return nil, err
	}
	columns, err := s.columns(s.fields)
	if err != nil {
		return nil, err
	}
	parameters := []string{since.Value}
	if since.Value == "" {
		from, parameters = "true", nil
	}
	w := s.seen.Window(since.Mark(), &s.options)
	sql := fmt.Sprintf("select * from %s where %s limit %d", s.inner(), from, query.MaxWindow+1)
	_, err = rows(ctx, s.conn, sql, parameters, len(s.fields), func(v []string) error { return w.Take(columns, v) })
	return w.Keys, err
}
