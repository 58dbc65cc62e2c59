package mirror

import (
	"errors"
	"fmt"
	"strings"

	"blockd/lists"
	"blockd/mail/addr"
)

const (
	maxID    = 64 // octets of Row.ID that are kept
	keptRows = 10 // refused rows of which a Report tells more than their number

	// A source of which more than a quarter of the rows are no entries, from 100 on, is another table than was
	// meant. Lists of files have the same bounds (docs/lists.md, section 8).
	ratioRows   = 100
	maxBadRatio = 0.25
)

// RefusedRow is a row that is no entry.
type RefusedRow struct {
	ID      string
	Class   lists.Class
	Message string
}

// Report is what a read has come to.
type Report struct {
	Rows    int64        // read, refused ones included
	Refused int64        // that are no entries, and not in the copy
	First   []RefusedRow // the first ten of these
	Entries int64        // that the copy has now
	Changed bool         // the copy has other entries than before
	Missed  int64        // of Reconcile: entries that differed, of which no change had told
}

// refuse counts a row that is no entry.
func (r *Report) refuse(row *Row, c lists.Class, message string) {
	if r.Refused++; len(r.First) < keptRows {
		r.First = append(r.First, RefusedRow{strings.Clone(cut(row.ID)), c, message})
	}
}

// judge refuses rows of which too many are no entries.
func (r *Report) judge() error {
	if r.Rows >= ratioRows && float64(r.Refused) > maxBadRatio*float64(r.Rows) {
		return r.unread()
	}
	return nil
}

func (r *Report) unread() error {
	return &Error{ClassEncoding, fmt.Errorf("%d of %d rows are no entries, such as row %q: %s", r.Refused, r.Rows, r.First[0].ID, r.First[0].Message)}
}

// useless says that not one row of a read is an entry: a table of fewer than ratioRows rows may lose all of them, but
// hardly so.
func (r *Report) useless() error {
	if r.Rows == 0 || r.Refused < r.Rows {
		return nil
	}
	return r.unread()
}

// line appends the line of a row to dst; false if the row is refused.
func (m *Mirror) line(dst []byte, row *Row, told *Report) ([]byte, bool) {
	told.Rows++
	it, err := m.item(row)
	if err != nil {
		class := lists.Syntax
		if e, ok := errors.AsType[*lists.EntryError](err); ok {
			class, err = e.Class, errors.New(e.Message)
		}
		told.refuse(row, class, err.Error())
		return dst, false
	}
	if m.settings.Action == lists.Allow && !it.Action.Allows() {
		told.refuse(row, lists.UnsupportedAction, "a refusal in a list of exceptions")
		return dst, false
	}
	if it.Origin == "" {
		it.Origin = cut(row.ID)
	}
	dst, ok := lists.AppendEntryLine(dst, &it)
	if !ok {
		told.refuse(row, lists.Syntax, fmt.Sprintf("expires at %d, want Unix seconds", it.Expires))
	}
	return dst, ok
}

// item reads a row. The error is an *lists.EntryError if it has a class of its own.
func (m *Mirror) item(row *Row) (lists.Item, error) {
	if it := row.Item; it != nil {
		switch it.Kind {
		case lists.Err:
			return lists.Item{}, &lists.EntryError{Text: it.Text, Class: it.Class, Message: it.Message}
		case lists.Glob, lists.Regexp:
			return lists.Item{}, &lists.EntryError{Text: it.Text, Class: lists.Unsupported, Message: "a pattern, which the copy of a source cannot hold"}
		}
		return *it, m.owns(it.Owner.Text != "")
	}
	if err := m.owns(row.Owner != ""); err != nil {
		return lists.Item{}, err
	}
	it, err := m.entry(strings.Trim(row.Entry, around))
	if err != nil {
		return it, err
	}
	if word := strings.ToLower(strings.Trim(row.Action, around)); word != "" {
		action, ok := lists.EntryAction(word)
		if !ok {
			return it, &lists.EntryError{Text: row.Action, Class: lists.UnsupportedAction,
				Message: fmt.Sprintf("action %q, want block, allow, tempfail or discard", cut(row.Action))}
		}
		it.Action = action
	}
	it.Reason, it.Expires = row.Reason, row.Expires
	if row.Owner != "" {
		err = it.SetOwner(strings.Trim(row.Owner, around))
	}
	return it, err
}

// around is what may stand around a value: files that were loaded into a table leave it there.
const around = " \t\r\n"

// owns refuses a row with an owner in a list of everybody, and one without in a list per recipient: it would be
// everybody's.
func (m *Mirror) owns(owned bool) error {
	switch {
	case owned == m.settings.PerRecipient:
		return nil
	case owned:
		return &lists.EntryError{Class: lists.Owner, Message: "an owner, in a list without per_recipient = true"}
	}
	return &lists.EntryError{Class: lists.Owner, Message: "no owner; without one the entry would be everybody's"}
}

// entry reads the text of an entry. Nearly every one is an address or a name and nothing else: the short way takes a
// tenth of the time.
func (m *Mirror) entry(text string) (lists.Item, error) {
	key, ok := addr.Simple(text)
	if !ok {
		settings := m.settings
		settings.PerRecipient = false // SetOwner comes after it
		it, err := lists.ParseEntry(text, settings)
		if err == nil && it.Class == lists.HostBits { // a file would have a warning; PostgreSQL's inet means the address
			return it, &lists.EntryError{Text: text, Class: it.Class, Message: "is the address meant, or its network? The query has to give one of them; in PostgreSQL, host(COLUMN) or network(COLUMN)"}
		}
		return it, err
	}
	it := lists.Item{Kind: lists.Addr, Key: key, Action: m.settings.Action}
	if key.Kind == addr.Domain {
		it.Kind, it.Scope = lists.Domain, lists.Tree
		if s := m.settings.Subdomains; s != nil && !*s {
			it.Scope = lists.Exact
		}
	}
	return it, nil
}

// cut bounds a text of a row that is shown.
func cut(text string) string { return text[:min(len(text), maxID)] }
