package postgres

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"blockd/sources/mirror/query"
)

// Plan says how the source will be read, in a few lines for people. With an *mirror.Unlogged it says so, too.
func (s *Source) Plan(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pollLimit)
	defer cancel()
	text, err := s.plan(ctx)
	return text, s.classed(err)
}

func (s *Source) plan(ctx context.Context) (string, error) {
	if err := s.connect(ctx); err != nil {
		return "", err
	}
	fields, err := s.describe(ctx)
	if err != nil {
		return "", err
	}
	s.fields = fields
	var b strings.Builder
	if err := s.planServer(ctx, &b); err != nil {
		return "", err
	}
	read, err := s.explain(ctx, "select * from "+s.inner())
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "everything: COPY in one snapshot; about %s rows\n", between(read, "rows=", " "))
	switch s.options.Changes {
	case query.Log:
		err = s.planLog(ctx, &b)
	case query.Watermark:
		err = s.planWatermark(ctx, &b)
	default:
		b.WriteString("changes: none are told of; everything is read each time\n")
	}
	if err == nil && s.options.Notify != "" {
		fmt.Fprintf(&b, "hints: NOTIFY on the channel %s\n", s.options.Notify)
	}
	if now, asked := s.triggers(ctx); err == nil && s.options.Changes != query.None {
		err = cmp.Or(asked, s.timed, now.judge("", &s.options))
	}
	return b.String(), err
}

func (s *Source) planServer(ctx context.Context, b *strings.Builder) error {
	const sql = `select current_setting('server_version'), current_database(), current_user,
		case when pg_is_in_recovery() then ', a standby' else '' end,
		coalesce((select ', TLS ' || version from pg_stat_ssl where pid = pg_backend_pid() and ssl), ', no TLS')`
	_, err := rows(ctx, s.conn, sql, nil, 5, func(v []string) error {
		_, err := fmt.Fprintf(b, "server: PostgreSQL %s, database %s, as %s%s%s\n", v[0], v[1], v[2], v[3], v[4])
		return err
	})
	return err
}

func (s *Source) planLog(ctx context.Context, b *strings.Builder) error {
	const sql = `select count(*), coalesce(date_trunc('second', min(at))::text, '') from blockd_log where list = $1::text`
	_, err := rows(ctx, s.conn, sql, []string{s.options.List}, 2, func(v []string) error {
		if v[0] == "0" {
			fmt.Fprintf(b, "changes: the log has no row of the list; execute what blockd source ddl prints\n")
			return nil
		}
		fmt.Fprintf(b, "changes: the log, of which %s rows since %s are of the list\n", v[0], v[1])
		return nil
	})
	if err != nil {
		return err
	}
	return s.planEntry(ctx, b)
}

// planEntry says how the rows of an entry that has changed are found.
func (s *Source) planEntry(ctx context.Context, b *strings.Builder) error {
	columns, err := s.columns(s.fields)
	if err != nil {
		return err
	}
	condition := strings.NewReplacer("$1", "'{a@bulk.example}'", "$2", "'{anna@here.example}'").Replace(s.ofKeys(columns))
	return s.planOf(ctx, b, "the rows of an entry that has changed", condition)
}

func (s *Source) planWatermark(ctx context.Context, b *strings.Builder) error {
	_, name, from, err := s.column(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "changes: %s from %v before the highest on\n", s.options.Watermark, s.options.Overlap)
	highest := "(select max(" + name + ") from " + s.inner() + ")"
	if err := s.planOf(ctx, b, "the rows behind the watermark", strings.ReplaceAll(from, "$1", highest)); err != nil {
		return err
	}
	return s.planEntry(ctx, b)
}

// planOf says whether an index finds the rows that hold a condition.
func (s *Source) planOf(ctx context.Context, b *strings.Builder, what, condition string) error {
	text, err := s.explain(ctx, "select * from "+s.inner()+" where "+condition)
	if err != nil {
		return err
	}
	how := "by an index"
	if !strings.Contains(text, "Index") {
		how = "by reading the whole table each time; an index would help, unless the table is small"
	}
	fmt.Fprintf(b, "%s: %s\n", what, how)
	return nil
}

// explain is the plan of a statement, which is not executed.
func (s *Source) explain(ctx context.Context, sql string) (text string, err error) {
	_, err = rows(ctx, s.conn, "explain "+sql, nil, 1, func(v []string) error {
		text += v[0] + "\n"
		return nil
	})
	return text, err
}

// between is what stands between two texts for the first time.
func between(text, before, after string) string {
	_, text, _ = strings.Cut(text, before)
	text, _, _ = strings.Cut(text, after)
	return text
}
