package mirror

import (
	"context"
	"errors"
	"fmt"

	"blockd/lists"
)

// Row is one row of a source. Its texts are a stranger's: any octets, of any length.
type Row struct {
	Entry   string // as a plain list has it, without "!" (docs/lists.md, section 2)
	Owner   string // whose entry it is, in a list per recipient: a mailbox or a domain; "" = everybody's
	Action  string // "block", "allow", "tempfail" or "discard"; "" = the list's own
	Expires int64  // when the entry ends, in Unix seconds; 0 = never
	Reason  string // a note; "" = none
	ID      string // what the source calls the row; "" = nothing

	// Item is set by a source of list files, which package lists has read: the entry and all that the file says of it,
	// or a line that was refused (lists.Err). Entry, Action, Expires and Reason then count for nothing. It holds until
	// yield returns.
	Item *lists.Item
}

// Change is what a source says now of an entry that has changed.
type Change struct {
	Entry string
	Rows  []Row  // all rows of this entry, and owner; none: it is gone
	Owner string // whose entry it is, in a list per recipient
}

// Mark is where a source's changes go on. Only the source that made it can read it.
type Mark string

// Origin is a source of rows. One goroutine calls it, one method at a time.
//
// An error should be an *Error with its class. Of others a passed deadline is ClassTimeout, and anything else
// ClassQuery.
type Origin interface {
	// Fingerprint names server, database and schema. With another fingerprint than before, everything is read anew.
	Fingerprint(context.Context) (string, error)

	// All yields every row, as of one moment, and returns the mark at which the changes after that moment begin. A
	// source without snapshots gives what changes meanwhile as it was before or after, with a mark from before the
	// read: Read asks for the changes at once. All returns no error only if the source itself has said that this was
	// all. An error of yield ends it, and is returned.
	All(ctx context.Context, yield func(Row) error) (Mark, error)

	// Changes yields what has changed since a mark, and returns the next mark. An entry that comes twice does no
	// harm. ErrTooOld says that the source cannot tell any more, or never could.
	Changes(ctx context.Context, since Mark, yield func(Change) error) (Mark, error)

	// Wait returns when something may have changed, or with the context. It is a hint and may come late or never.
	Wait(context.Context) error
}

// Source is an Origin that holds connections, as the drivers of databases do. It may be used again after an error.
type Source interface {
	Origin
	Close() error
}

// ErrTooOld says that only a full read can tell what the source holds.
var ErrTooOld = errors.New("the changes since the last read are not known any more")

// TooOld is ErrTooOld of a source that has told changes, with why it cannot now; a Keeper warns of it.
func TooOld(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTooOld, fmt.Sprintf(format, args...))
}

// Unlogged is an ErrTooOld that lasts until somebody removes its cause: the source does not tell all of its changes.
// It is read whole instead, and is not "ok" meanwhile.
type Unlogged struct {
	Why  string // a clause
	Hint string // what helps
}

// Error gives one line.
func (u *Unlogged) Error() string {
	return u.Why + "; everything is read again and again meanwhile; hint: " + u.Hint
}

// Is reports that to all who only ask whether a full read is called for, this is ErrTooOld.
func (u *Unlogged) Is(target error) bool { return target == ErrTooOld }

// Class is why a copy could not be brought up to date: one word for logs and metrics.
type Class string

// The classes.
const (
	ClassUnreachable = Class("unreachable")
	ClassTimeout     = Class("timeout")
	ClassAuth        = Class("auth")
	ClassQuery       = Class("query")
	ClassTruncated   = Class("truncated") // the source ended before its end mark
	ClassSchema      = Class("schema")
	ClassRows        = Class("rows")     // more than the source may have
	ClassEncoding    = Class("encoding") // too many rows are no entries
	ClassRefused     = Class("refused")  // the source does not want to
	ClassDisk        = Class("disk")     // of the copy: full, failed, or damaged
	ClassUnlogged    = Class("unlogged") // the source does not tell all changes, and is read whole each time; see Unlogged
)

// Error is why a copy is as it was before.
type Error struct {
	Class Class
	Err   error
}

// Error gives one line: "class: text".
func (e *Error) Error() string { return string(e.Class) + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// ofDisk gives an error of the copy's folder its class.
func ofDisk(err error) error {
	if _, classed := errors.AsType[*Error](err); err == nil || classed {
		return err
	}
	return &Error{ClassDisk, err}
}

// ofOrigin gives an error of a source its class.
func ofOrigin(err error) error {
	if _, classed := errors.AsType[*Error](err); err == nil || classed || errors.Is(err, ErrTooOld) || errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{ClassTimeout, err}
	}
	return &Error{ClassQuery, err}
}
