package mirror

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"blockd/lists"
)

// columns are those that a query may have; only the entry must be there.
var columns = []string{"entry", "action", "expires", "reason", "id", "owner"}

// Columns is where the columns of a query's result are, in the order of the names above; -1 = it has none.
type Columns [6]int

// NewColumns finds the columns of a query's result by their names. The error is of ClassSchema: a column that is
// missing, unknown or there twice.
func NewColumns(names []string) (Columns, error) {
	c := Columns{-1, -1, -1, -1, -1, -1}
	for at, name := range names {
		i := slices.Index(columns, strings.ToLower(name))
		switch {
		case i < 0:
			return c, &Error{ClassSchema, fmt.Errorf("the query gives a column %q; want entry, and perhaps owner, action, expires, reason and id", cut(name))}
		case c[i] >= 0:
			return c, &Error{ClassSchema, fmt.Errorf("the query gives the column %q twice", columns[i])}
		}
		c[i] = at
	}
	if c[0] < 0 {
		return c, &Error{ClassSchema, fmt.Errorf(`the query gives no column "entry"; name it so: select address as entry`)}
	}
	return c, nil
}

// Owner is where the owner of an entry stands; -1 = the query names none.
func (c Columns) Owner() int { return c[5] }

// Row makes a row of what the columns hold, as text; NULL is "". An end that is no time makes a row that is refused.
func (c Columns) Row(values []string) Row {
	value := func(i int) string {
		if c[i] < 0 || c[i] >= len(values) {
			return ""
		}
		return values[c[i]]
	}
	row := Row{Entry: value(0), Action: value(1), Reason: value(3), ID: value(4), Owner: value(5)}
	if text := strings.Trim(value(2), around); text != "" {
		row.Expires = expires(text)
	}
	return row
}

// noTime is the end of a row whose end cannot be read: no line has room for it, so the row is refused.
const noTime = -1

// timeForms are how databases write a time. One without a zone is UTC.
var timeForms = []string{
	time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07",
	"2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", time.DateOnly,
}

// expires reads when an entry ends: Unix seconds, a time as databases write it, or "infinity".
func expires(text string) int64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if text == "infinity" || strings.HasPrefix(text, "0000-00-00") { // PostgreSQL and MySQL: never
		return 0
	}
	for _, form := range timeForms {
		if t, err := time.Parse(form, text); err == nil && t.Unix() > 0 {
			return t.Unix()
		}
	}
	return noTime
}

// Say gives a row as blockd understands it, for people: the line of the format entries, or why there is none. With a
// Guard in the settings that also says what the gate would.
func Say(row Row, settings lists.Settings) (line string, refused *RefusedRow) {
	told, m := Report{}, &Mirror{settings: settings}
	if it, err := m.item(&row); err == nil && settings.Guard != nil && row.Item == nil {
		guarded := settings
		guarded.Action = it.Action
		guarded.PerRecipient = false
		if _, err := lists.ParseEntry(row.Entry, guarded); it.Owner.Text == "" && lists.Guarded(err) {
			e, _ := errors.AsType[*lists.EntryError](err)
			return "", &RefusedRow{cut(row.ID), e.Class, e.Message}
		}
	}
	text, ok := m.line(nil, &row, &told)
	if !ok {
		return "", &told.First[0]
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}
