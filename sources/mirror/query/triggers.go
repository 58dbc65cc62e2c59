package query

import (
	"context"
	"database/sql"
	"errors"
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
		return &mirror.Unlogged{Why: fmt.Sprintf("the foreign key %s deletes or changes rows of %s, and this database fires no trigger then", key, r.form.Table),
			Hint: "a key without cascade and set null, or changes = \"none\" for list " + r.options.List}
	}
	if r.armed != "" && r.armed != now.String {
		return mirror.TooOld("its triggers are others than were read")
	}
	return nil
}

// Triggers tells the table and the triggers that fill its log from any others, for a fingerprint; "" if they are not
// known. The error is an *mirror.Unlogged where the database refuses to tell.
func (r *Reader) Triggers(ctx context.Context, conn *sql.Conn) (string, error) {
	text, args := r.triggers()
	var now triggers
	err := r.classed(conn.QueryRowContext(ctx, "select "+text, args...).Scan(&now))
	r.armed = now.String
	if err == nil && r.dialect.Tables != "" && len(args) > 0 {
		var tables sql.NullString
		err = r.classed(conn.QueryRowContext(ctx, "select "+r.dialect.Tables, args[:2]...).Scan(&tables))
		now.String += " tables " + tables.String
	}
	if e, ok := errors.AsType[*mirror.Error](err); ok && (e.Class == mirror.ClassAuth || e.Class == mirror.ClassSchema || e.Class == mirror.ClassQuery) {
		return "", &mirror.Unlogged{Why: fmt.Sprintf("whether triggers log all changes is not known (%v)", e.Err),
			Hint: "blockd source ddl " + r.options.List + " prints what is missing, and its grants"}
	}
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
