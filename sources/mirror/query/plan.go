package query

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// Plan says for people how the list is read, with the plans that the database makes. With an *mirror.Unlogged it says
// so, too.
func (r *Reader) Plan(ctx context.Context) (text string, err error) {
	err = r.open(ctx, func(conn *sql.Conn) (err error) {
		text, err = r.plan(ctx, conn)
		return err
	})
	return text, err
}

func (r *Reader) plan(ctx context.Context, conn *sql.Conn) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "everything: %s\n", oneLine(r.text))
	if err := r.explain(ctx, conn, &b, r.text); err != nil {
		return "", err
	}
	if r.options.Changes == None {
		b.WriteString("changes: not known; everything is read each time\n")
		return b.String(), nil
	}
	mark, err := r.mark(ctx, conn)
	if err != nil {
		return "", err
	}
	switch r.options.Changes {
	case Log:
		number, _, _ := strings.Cut(string(mark), " ")
		logged, err := r.one(ctx, conn, "select count(*) from blockd_log where list = ?", r.options.List)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "changes: blockd_log, last number %s, %s lines of this list\n", number, logged)
	case Watermark:
		at, _ := PositionOf(mark)
		fmt.Fprintf(&b, "changes: rows whose %s is at least %q, less %v\n", r.options.Watermark, at.Value, r.options.Overlap)
		if err := r.explain(ctx, conn, &b, fmt.Sprintf("select * from (%s\n) q where %s >= '%s'", r.text, r.options.Watermark, strings.ReplaceAll(at.Value, "'", "''"))); err != nil {
			return "", err
		}
	}
	key := "'a'"
	if r.options.PerRecipient {
		b.WriteString("an entry that has changed: (entry, owner) in (...)\n")
		key = "('a', 'b')"
	} else {
		b.WriteString("an entry that has changed: entry in (...)\n")
	}
	if err := r.explain(ctx, conn, &b, r.among(key+", "+key)); err != nil {
		return "", err
	}
	_, err = r.Idle(ctx, conn, mark)
	return b.String(), err
}

// explain appends the database's plan of a query, a step a line.
func (r *Reader) explain(ctx context.Context, conn *sql.Conn, b *strings.Builder, text string) error {
	rows, err := conn.QueryContext(ctx, r.dialect.Explain+text)
	if err != nil {
		return r.dialect.Class(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return r.dialect.Class(err)
	}
	values, places := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		places[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return r.dialect.Class(err)
		}
		b.WriteString("   ")
		for i, v := range values {
			if v.String != "" {
				fmt.Fprintf(b, " %s=%s", names[i], oneLine(v.String))
			}
		}
		b.WriteString("\n")
	}
	return r.classed(rows.Err())
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
