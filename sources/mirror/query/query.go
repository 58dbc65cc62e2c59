// Package query holds what the drivers of SQL databases share: the operator's query, the columns of its result, and
// how the rows of entries that have changed become changes.
package query

import (
	"errors"
	"fmt"
	"strings"

	"blockd/sources/mirror"
)

// How a source tells its changes, as the key changes says it.
const (
	Log       = "log"       // a table that triggers fill
	Watermark = "watermark" // a column that grows with each change of a row
	None      = "none"      // not at all
)

// MaxEntries bounds the entries that one poll of changes reads again. More of them are better read as a whole.
const MaxEntries = 50_000

// MaxOctets bounds the rows of such entries. A copy takes no more changes at once.
const MaxOctets = 4 << 20

// MaxWindow bounds the rows behind a watermark that one poll reads, to see which of them are new.
const MaxWindow = 4 * MaxEntries

// Judge says what is wrong with the keys that all these drivers have. The error names the key.
func Judge(query, changes, watermark string) error {
	switch {
	case Text(query) == "":
		return errors.New("query: missing; want a select that names a column entry")
	case strings.ContainsRune(query, 0):
		return errors.New("query: holds an octet 0")
	}
	switch changes {
	case Log, None:
		if watermark != "" {
			return fmt.Errorf(`watermark: only with changes = "watermark", have %q`, changes)
		}
	case Watermark:
		if watermark == "" {
			return errors.New(`watermark: missing; want the column by which changed rows are found, such as "updated_at"`)
		}
	default:
		return fmt.Errorf(`changes: want "log", "watermark" or "none", have %q`, changes)
	}
	return nil
}

// Text is a query without the semicolons and the space at its end, so that it can stand in a larger one.
func Text(query string) string { return strings.TrimRight(strings.TrimSpace(query), "; \t\r\n") }

// Columns are where the columns of a result are. With a watermark there are two more than a row has.
type Columns struct {
	mirror.Columns
	Watermark int // -1 = there is none
	Deleted   int // of the rows that stand for deleted ones; -1 = there is none
}

// NewColumns finds the columns of a result by their names. Only with a watermark, whose column is named then, may the
// result have that one and "deleted". The error is of mirror.ClassSchema.
func NewColumns(names []string, watermark string) (Columns, error) {
	c := Columns{Watermark: -1, Deleted: -1}
	var rest []string
	var at []int
	for i, name := range names {
		switch {
		case watermark != "" && strings.EqualFold(name, watermark):
			c.Watermark = i
			continue
		case watermark != "" && strings.EqualFold(name, "deleted"):
			c.Deleted = i
			continue
		}
		rest, at = append(rest, name), append(at, i)
	}
	var err error
	if c.Columns, err = mirror.NewColumns(rest); err != nil {
		return c, err
	}
	for i, from := range c.Columns {
		if from >= 0 {
			c.Columns[i] = at[from]
		}
	}
	if watermark != "" && c.Watermark < 0 {
		return c, &mirror.Error{Class: mirror.ClassSchema, Err: fmt.Errorf("the query gives no column %q, which is the watermark; select it too", watermark)}
	}
	return c, nil
}

// Gone reports whether a row stands for one that was deleted: its column "deleted" is neither NULL nor a way to say no.
func (c Columns) Gone(values []string) bool {
	if c.Deleted < 0 {
		return false
	}
	switch strings.ToLower(values[c.Deleted]) {
	case "", "0", "f", "false", "n", "no":
		return false
	}
	return true
}

// Key is what a change is about, as the database writes it: an entry, and in a list per recipient its owner.
type Key struct{ Entry, Owner string }

// KeyOf is the key of a row.
func KeyOf(row *mirror.Row, perRecipient bool) Key {
	if perRecipient {
		return Key{row.Entry, row.Owner}
	}
	return Key{Entry: row.Entry}
}

// NeedOwner is the error for a list per recipient whose query names no owners.
func NeedOwner(c mirror.Columns, perRecipient bool) error {
	if perRecipient && c.Owner() < 0 {
		return &mirror.Error{Class: mirror.ClassSchema, Err: errors.New(`the query gives no column "owner", and the list has per_recipient = true; name it so: select mailbox as owner`)}
	}
	return nil
}

// Changes yields what a source says now of the keys that were asked about: rows are all that it has of them.
//
// Keys that are gone come first. Of two spellings of one entry the one that is there has the last word then.
func Changes(asked []Key, rows []mirror.Row, perRecipient bool, yield func(mirror.Change) error) error {
	found := map[Key][]mirror.Row{}
	for i := range rows {
		key := KeyOf(&rows[i], perRecipient)
		found[key] = append(found[key], rows[i])
	}
	for _, key := range asked {
		if len(found[key]) == 0 {
			if err := yield(mirror.Change{Entry: key.Entry, Owner: key.Owner}); err != nil {
				return err
			}
		}
	}
	for i := range rows {
		key := KeyOf(&rows[i], perRecipient)
		all := found[key]
		if len(all) == 0 {
			continue // it was the first of several
		}
		if err := yield(mirror.Change{Entry: key.Entry, Owner: key.Owner, Rows: all}); err != nil {
			return err
		}
		delete(found, key)
	}
	return nil
}

// TooMany is the error for more changes than one poll reads again: a full read sees them. With a watermark they are
// there again at the next poll, so that it is an *mirror.Unlogged.
func (o *Options) TooMany() error {
	if o.Changes != Watermark {
		return mirror.TooOld("more than %d entries have changed, or their rows have more than %d MiB", MaxEntries, MaxOctets>>20)
	}
	return &mirror.Unlogged{Why: fmt.Sprintf("too many rows have no %s, or one within %v before the highest, or later than now: more than %d rows, or %d entries, or %d MiB",
		o.Watermark, o.Overlap, MaxWindow, MaxEntries, MaxOctets>>20),
		Hint: "give each row its time, in UTC if it has no zone; take a shorter overlap, or changes = \"log\" for list " + o.List}
}

// ErrAnything is the error for a row of the log without an entry.
var ErrAnything = mirror.TooOld("blockd_log says that anything may have changed, as after TRUNCATE, where a trigger has failed, or where triggers are older than per_recipient")
