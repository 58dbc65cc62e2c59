package query

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"blockd/sources/mirror"
)

// triggers is what a database says of the triggers that fill the log: a part "… EVENT …" for each, behind it "…
// cascade KEY …" for each foreign key by which rows go without one. It is not valid of what is no table.
type triggers struct{ sql.NullString }

// judge says what a poll of r makes of them.
func (now triggers) judge(r *Reader) error {
	if !now.Valid {
		return nil
	}
	var lacks []string
	for _, event := range []string{"insert", "update", "delete"} {
		if !strings.Contains(now.String, " "+event+" ") {
			lacks = append(lacks, event)
		}
	}
	if len(lacks) > 0 {
		return &mirror.Unlogged{Why: fmt.Sprintf("no trigger logs each change of %s (%s)", r.form.Table, strings.Join(lacks, ", ")),
			Hint: "blockd source ddl " + r.options.List + " prints what is missing"}
	}
	if _, key, cascades := strings.Cut(now.String, " cascade "); cascades {
		key, _, _ = strings.Cut(key, " ")
		return &mirror.Unlogged{Why: fmt.Sprintf("the foreign key %s deletes rows of %s, and this database fires no trigger then", key, r.form.Table),
			Hint: "a key without on delete cascade, or changes = \"none\" for list " + r.options.List}
	}
	if r.armed != "" && r.armed != now.String {
		return mirror.TooOld("its triggers are others than were read")
	}
	return nil
}

// Triggers tells the triggers that fill the log from any others, for a fingerprint; "" if they are not known.
func (r *Reader) Triggers(ctx context.Context, conn *sql.Conn) (string, error) {
	text, args := r.triggers()
	var now triggers
	err := r.classed(conn.QueryRowContext(ctx, "select "+text, args...).Scan(&now))
	r.armed = now.String
	return now.String, err
}

// triggers is an expression that gives triggers, and its parameters. The list stands as in a text of SQL.
func (r *Reader) triggers() (text string, args []any) {
	path := r.form.Path
	if len(path) == 0 || r.options.Changes != Log { // whoever has made the triggers of another query knows where they belong
		return "null", nil
	}
	schema := ""
	if n := len(path); n > 1 {
		schema = path[n-2]
	}
	return r.dialect.Triggers, []any{schema, path[len(path)-1], strings.ReplaceAll(r.options.List, "'", "''")}
}
