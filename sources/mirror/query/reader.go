package query

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"blockd/sources/mirror"
)

// atOnce is how many entries one query asks for.
const atOnce = 200

// Options are what a [list.source] says, for a database behind package database/sql.
type Options struct {
	DSN       string        // a URL, with its password
	Query     string        // a SELECT of the columns entry, action, expires, reason and id
	Changes   string        // Log, Watermark or None
	Watermark string        // the column, with Changes = Watermark
	Overlap   time.Duration // rows that are older than the watermark by this are read again; whole seconds count
	Notify    string        // the channel of NOTIFY, with PostgreSQL; "" = none
	List      string        // the list's name, as it stands in the log

	PerRecipient bool // entries have owners, and an entry that has changed is one of an owner
}

// Check finds faults in the options, the DSN aside. An error names the key.
func (o *Options) Check() error {
	if err := Judge(o.Query, o.Changes, o.Watermark); err != nil {
		return err
	}
	switch {
	case strings.ContainsAny(o.Watermark, " \t\r\n\"'`;()\x00"):
		return fmt.Errorf("watermark: %.40q is no name of a column", o.Watermark)
	case o.Overlap < 0:
		return fmt.Errorf("overlap: %v is below 0", o.Overlap)
	case o.Notify != "":
		return errors.New("notify: only PostgreSQL has it")
	}
	return nil
}

// Reader reads the rows of a query, and which of them have changed, each time in a read transaction that sees one moment.
// With a fingerprint, Wait and Close of its driver it is a mirror.Source.
type Reader struct {
	options Options
	dialect Dialect
	open    func(context.Context, func(*sql.Conn) error) error // gives a connection in such a transaction to a function
	text    string                                             // of the query
	form    Form                                               // of it; zero = it has none that triggers can log
	timed   error                                              // of Followed
	armed   string                                             // what Triggers has given last
	seen    Seen
}

// Dialect is how databases differ.
type Dialect struct {
	Last string // the query for the number that the log gave out last: one row, or none for 0
	// Triggers is an expression of three parameters: schema ("" = the one that is used), table and list. See triggers.
	Triggers string
	Tables   string            // of schema and table: which tables these are, beyond what Triggers tells at each poll; "" = nothing
	Text     string            // the type that CAST makes a text of
	Octets   bool              // values have types of their own: []byte is no text, and equals none
	Now      string            // the time of now, as a text in the first form of watermarks
	Values   string            // what stands before a row of pairs behind "in": "values " or nothing
	Explain  string            // what stands before a query to have its plan
	Class    func(error) error // gives an error of the database its class
}

// NewReader makes a reader of options that were checked. open calls a function with a connection, as On does.
func NewReader(o Options, d Dialect, open func(context.Context, func(*sql.Conn) error) error) *Reader {
	form, _ := FormOf(o.Query)
	return &Reader{options: o, dialect: d, open: open, text: Text(o.Query), form: form, timed: Followed(o.Query, o.List)}
}

// On calls a function with a connection, in a transaction that these statements begin, or in none without them. After
// an error the connection ends: the rest of an answer may still be on its way. The error of a context that has ended is
// that of the context.
func On(ctx context.Context, db *sql.DB, class func(error) error, begin []string, use func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return cmp.Or(ctx.Err(), class(err))
	}
	defer conn.Close()
	for i := 0; i < len(begin) && err == nil; i++ {
		_, err = conn.ExecContext(ctx, begin[i])
	}
	if err == nil {
		if err = use(conn); err == nil && len(begin) > 0 {
			_, err = conn.ExecContext(ctx, "rollback")
		} else if err != nil {
			class = func(err error) error { return err } // it has one
		}
	}
	if err == nil {
		return nil
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	return cmp.Or(ctx.Err(), class(err))
}

// Identity tells this query from others, for a fingerprint.
func (r *Reader) Identity() string {
	o := r.options
	return fmt.Sprintf("%016x", xxh3.HashString(strings.Join([]string{r.text, o.Changes, o.Watermark, o.List}, "\x00")))
}

// All implements mirror.Origin.
func (r *Reader) All(ctx context.Context, yield func(mirror.Row) error) (mark mirror.Mark, err error) {
	err = r.open(ctx, func(conn *sql.Conn) (err error) {
		if mark, err = r.mark(ctx, conn); err != nil {
			return err
		}
		return r.rows(ctx, conn, r.text, nil, func(c Columns, values []string) error {
			if c.Gone(values) {
				return nil
			}
			return yield(c.Row(values))
		})
	})
	return mark, err
}

// Changes yields the entries that have changed since a mark, each with all its rows of now, and returns the next mark.
func (r *Reader) Changes(ctx context.Context, conn *sql.Conn, since mirror.Mark, yield func(mirror.Change) error) (mirror.Mark, error) {
	var keys []key
	var next mirror.Mark
	if r.timed != nil && r.options.Changes != None {
		return "", r.timed
	}
	var err error
	switch r.options.Changes {
	case Log:
		keys, next, err = r.logged(ctx, conn, since)
	case Watermark:
		keys, next, err = r.newer(ctx, conn, since)
	default:
		err = mirror.ErrTooOld
	}
	if err != nil {
		return "", err
	}
	for part := range slices.Chunk(keys, atOnce) {
		if err := r.now(ctx, conn, part, yield); err != nil {
			return "", err
		}
	}
	if r.options.Changes == Watermark {
		r.seen.End(next)
	}
	return next, nil
}

// mark is where changes go on after the moment of the transaction.
func (r *Reader) mark(ctx context.Context, conn *sql.Conn) (mirror.Mark, error) {
	switch r.options.Changes {
	case Log:
		last, err := r.number(ctx, conn)
		if err != nil {
			return "", err
		}
		return r.logMark(ctx, conn, last)
	case Watermark:
		text, err := r.one(ctx, conn, fmt.Sprintf("select cast(max(%s) as %s) from (%s\n) q", r.options.Watermark, r.dialect.Text, r.text))
		if err != nil || text == "" {
			return Position{}.Mark(), err
		}
		now, err := r.one(ctx, conn, fmt.Sprintf("select cast(%s as %s)", r.dialect.Now, r.dialect.Text))
		if err != nil {
			return "", err
		}
		return Position{Value: atMost(text, now, time.Now())}.Mark(), nil
	}
	return "", nil
}

// Idle reports whether the log has nothing new after a mark, by one query, which may be outside of a transaction. The
// error is an *mirror.Unlogged if triggers are missing.
func (r *Reader) Idle(ctx context.Context, conn *sql.Conn, since mirror.Mark) (bool, error) {
	if r.options.Changes != Log {
		return false, r.timed
	}
	if r.timed != nil {
		return false, r.timed
	}
	var last, at sql.NullString
	var now triggers
	number, was, _ := strings.Cut(string(since), " ")
	armed, args := r.triggers()
	text := fmt.Sprintf("select cast((%s) as %s), cast((select at from blockd_log where rev = ?) as %[2]s), %[3]s", r.dialect.Last, r.dialect.Text, armed)
	if err := conn.QueryRowContext(ctx, text, append([]any{number}, args...)...).Scan(&last, &at, &now); err != nil {
		if _, shown := r.Triggers(ctx, conn); errors.As(shown, new(*mirror.Unlogged)) { // and the log may be all right
			return false, shown
		}
		return false, r.ofLog(r.dialect.Class(err))
	}
	if err := now.judge(r); err != nil {
		return false, err
	}
	return last.String == number && at.Valid && at.String == was, nil
}

// number is what the log gave out last; 0 if it gave out none.
func (r *Reader) number(ctx context.Context, conn *sql.Conn) (int64, error) {
	text, err := r.one(ctx, conn, r.dialect.Last)
	if err != nil || text == "" {
		return 0, r.ofLog(err)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, &mirror.Error{Class: mirror.ClassSchema, Err: fmt.Errorf("the log's last number is %.40q", text)}
	}
	return n, nil
}

// logMark is the mark of a number of the log: the number, and when it was written. A log that was restored from a
// backup gives out the same number at another time.
func (r *Reader) logMark(ctx context.Context, conn *sql.Conn, rev int64) (mirror.Mark, error) {
	at, err := r.one(ctx, conn, fmt.Sprintf("select cast(at as %s) from blockd_log where rev = ?", r.dialect.Text), rev)
	return mirror.Mark(strings.TrimSpace(strconv.FormatInt(rev, 10) + " " + at)), r.ofLog(err)
}

// ofLog says where a log comes from, if there is none.
func (r *Reader) ofLog(err error) error {
	if e, ok := errors.AsType[*mirror.Error](err); ok && e.Class == mirror.ClassSchema {
		return &mirror.Error{Class: e.Class, Err: fmt.Errorf("%w; hint: blockd source ddl %s prints what a log needs", e.Err, r.options.List)}
	}
	return err
}

// key is a Key as the database has it, with values of its own types; without an owner that is nil.
type key struct{ entry, owner any }

// logged gives the keys that the log has after a mark.
func (r *Reader) logged(ctx context.Context, conn *sql.Conn, since mirror.Mark) ([]key, mirror.Mark, error) {
	number, at, _ := strings.Cut(string(since), " ")
	from, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return nil, "", mirror.TooOld("the mark is of another source")
	}
	last, err := r.number(ctx, conn)
	if err != nil {
		return nil, "", err
	}
	same, err := r.logMark(ctx, conn, from)
	if err != nil {
		return nil, "", err
	}
	if last < from {
		return nil, "", mirror.TooOld("blockd_log ends at change %d, and %d was read: it was reset, restored from a backup, or has lost its end in a failover", last, from)
	}
	if _, now, there := strings.Cut(string(same), " "); there && now != at {
		return nil, "", mirror.TooOld("change %d of blockd_log is another one than was read: it was reset, restored from a backup, or has lost its end in a failover", from)
	}
	if last == from {
		return nil, since, nil
	}
	// Numbers are given out without gaps. One that is missing was removed before we read it.
	kept, err := r.one(ctx, conn, "select count(*) from blockd_log where rev > ? and rev <= ?", from, last)
	if err != nil {
		return nil, "", err
	}
	if kept != strconv.FormatInt(last-from, 10) {
		return nil, "", mirror.TooOld("blockd_log has not got all changes after %d any more: it was cleaned before they were read", from)
	}
	keys, err := r.keys(ctx, conn, r.options.List, from, last)
	if err != nil {
		return nil, "", err
	}
	next, err := r.logMark(ctx, conn, last)
	return keys, next, err
}

// keys gives the keys of a list between two numbers of the log, as the database has them.
func (r *Reader) keys(ctx context.Context, conn *sql.Conn, args ...any) (all []key, err error) {
	owner := "null"
	if r.options.PerRecipient {
		owner = "owner"
	}
	rows, err := conn.QueryContext(ctx, fmt.Sprintf("select distinct entry, %s from blockd_log where list = ? and rev > ? and rev <= ? limit %d", owner, MaxEntries+1), args...)
	if err != nil {
		return nil, r.dialect.Class(err)
	}
	defer rows.Close()
	for rows.Next() {
		var k key
		if err := rows.Scan(&k.entry, &k.owner); err != nil {
			return nil, r.dialect.Class(err)
		}
		if len(all) == MaxEntries {
			return nil, r.options.TooMany()
		}
		k.entry, k.owner = r.typed(k.entry), r.typed(k.owner)
		if k.entry == "" || k.owner == "" { // anything may have changed, or the triggers are of a time when owners were not noted
			return nil, ErrAnything
		}
		all = append(all, k)
	}
	return all, r.classed(rows.Err())
}

// typed is a value as it is asked about.
func (r *Reader) typed(value any) any {
	if octets, ok := value.([]byte); ok && !r.dialect.Octets {
		return string(octets)
	}
	return value
}

// newer gives the keys of rows whose watermark is not older than a mark, less the overlap, and that are not as the
// poll before had them.
func (r *Reader) newer(ctx context.Context, conn *sql.Conn, since mirror.Mark) (keys []key, next mirror.Mark, err error) {
	was, ok := PositionOf(since)
	if !ok {
		return nil, "", mirror.TooOld("the mark is of another source")
	}
	// Rows without a watermark may have changed at any time.
	text, args := fmt.Sprintf("select * from (%s\n) q", r.text), []any(nil)
	if was.Value != "" {
		from, err := earlier(was.Value, r.options.Overlap)
		if err != nil {
			return nil, "", err
		}
		text, args = fmt.Sprintf("%s where (%s >= ? or %[2]s is null)", text, r.options.Watermark), []any{from}
	}
	w := r.seen.Window(since, &r.options)
	err = r.rows(ctx, conn, fmt.Sprintf("%s limit %d", text, MaxWindow+1), args, w.Take)
	if err != nil || len(w.Keys) == 0 {
		return nil, since, err
	}
	for _, k := range w.Keys {
		if keys = append(keys, key{entry: k.Entry}); r.options.PerRecipient {
			keys[len(keys)-1].owner = k.Owner
		}
	}
	mark, err := r.mark(ctx, conn)
	now, _ := PositionOf(mark)
	return keys, Position{now.Value, was.Polls + 1}.Mark(), err
}

// watermarks are the forms of a watermark that is a time.
var watermarks = []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02T15:04:05Z07:00", "2006-01-02 15:04:05Z07:00", time.DateOnly}

// atMost is a watermark that is no later than now: a row from the future would hide those that change before its time
// comes. now is the database's clock, in the first form of watermarks; clock is ours, for watermarks that are numbers.
func atMost(mark, now string, clock time.Time) string {
	if n, err := strconv.ParseInt(mark, 10, 64); err == nil {
		switch { // a number is a time if it could be one of this century
		case n >= 1e9 && n < 1e11:
			return strconv.FormatInt(min(n, clock.Unix()), 10)
		case n >= 1e12 && n < 1e14:
			return strconv.FormatInt(min(n, clock.UnixMilli()), 10)
		}
		return mark
	}
	latest, err := time.Parse(watermarks[0], now)
	for _, form := range watermarks {
		if t, no := time.Parse(form, mark); no == nil && err == nil && t.After(latest) {
			return latest.Format(form)
		}
	}
	return mark
}

// earlier is a watermark less the overlap: Unix seconds, or a time in the form that it has.
func earlier(mark string, overlap time.Duration) (any, error) {
	if n, err := strconv.ParseInt(mark, 10, 64); err == nil {
		if n >= 1e12 { // milliseconds
			return n - overlap.Milliseconds(), nil
		}
		return n - int64(overlap/time.Second), nil
	}
	for _, form := range watermarks {
		if t, err := time.Parse(form, mark); err == nil { // which takes fractions of a second, too
			return t.Add(-overlap).Truncate(time.Second).Format(form), nil
		}
	}
	return nil, &mirror.Error{Class: mirror.ClassSchema, Err: fmt.Errorf("the watermark %.40q is no time and no number", mark)}
}

// now yields what the query says now of some keys.
func (r *Reader) now(ctx context.Context, conn *sql.Conn, keys []key, yield func(mirror.Change) error) error {
	var asked []Key
	var args []any
	for _, k := range keys {
		asked = append(asked, Key{written(k.entry), written(k.owner)})
		if args = append(args, k.entry); r.options.PerRecipient {
			args = append(args, k.owner)
		}
	}
	var rows []mirror.Row
	size := 0
	err := r.rows(ctx, conn, r.among(strings.Repeat(","+r.place(), len(keys))[1:]), args, func(c Columns, values []string) error {
		for _, v := range values {
			size += len(v)
		}
		if size > MaxOctets {
			return r.options.TooMany()
		}
		if !c.Gone(values) {
			rows = append(rows, c.Row(values))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return Changes(asked, rows, r.options.PerRecipient, yield)
}

// among is the query for all rows of keys, each of which stands as place does.
func (r *Reader) among(keys string) string {
	if r.options.PerRecipient {
		return fmt.Sprintf("select * from (%s\n) q where (entry, owner) in (%s%s)", r.text, r.dialect.Values, keys)
	}
	return fmt.Sprintf("select * from (%s\n) q where entry in (%s)", r.text, keys)
}

// place is where a key stands in a query.
func (r *Reader) place() string {
	if r.options.PerRecipient {
		return "(?,?)"
	}
	return "?"
}

// written is a value as the rows of a query have it; NULL is "".
func written(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case []byte:
		return string(v)
	}
	return fmt.Sprint(value)
}

// rows yields the rows of a query, NULL being "".
func (r *Reader) rows(ctx context.Context, conn *sql.Conn, text string, args []any, yield func(c Columns, values []string) error) error {
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		return r.dialect.Class(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return r.dialect.Class(err)
	}
	columns, err := NewColumns(names, r.options.Watermark)
	if err == nil {
		err = NeedOwner(columns.Columns, r.options.PerRecipient)
	}
	if err != nil {
		return err
	}
	raw, places, values := make([]sql.RawBytes, len(names)), make([]any, len(names)), make([]string, len(names))
	for i := range raw {
		places[i] = &raw[i]
	}
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return r.dialect.Class(err)
		}
		for i, v := range raw {
			values[i] = string(v)
		}
		if err := yield(columns, values); err != nil {
			return err
		}
	}
	return r.classed(rows.Err())
}

// one gives the only value of a query; "" if it is NULL or there is no row.
func (r *Reader) one(ctx context.Context, conn *sql.Conn, text string, args ...any) (string, error) {
	var value sql.NullString
	err := conn.QueryRowContext(ctx, text, args...).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value.String, r.classed(err)
}

func (r *Reader) classed(err error) error {
	if err == nil {
		return nil
	}
	return r.dialect.Class(err)
}
