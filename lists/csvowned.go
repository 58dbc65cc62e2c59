package lists

import (
	"strings"

	"blockd/addr"
)

// owned reads the record in hand as the entry of an owner.
func (f *csvFile) owned(at columns) {
	text := func(column int) string {
		if column < 0 || column >= len(f.cells) {
			return ""
		}
		return trim(f.cells[column].text)
	}
	owner := f.r.settings.Owner.Text
	if at.owner >= 0 {
		owner = text(at.owner)
	}
	f.r.ownedRecord(owner, text(at.entry), text(at.action), text(at.reason))
}

// ofOwners reports whether usual may read lines of the file.
func (f *csvFile) ofOwners() bool {
	s := &f.r.settings
	return s.PerRecipient && s.Action == Block && f.at.owner >= 0 && f.at.score < 0 &&
		f.at.entry != f.at.owner && f.at.entry != f.at.action && f.at.entry != f.at.reason // each column has one part
}

// usual reads a line that is what nearly all are in a long table of owners: the columns that are asked for and no others,
// without quotes, and an address or a name of the same owner as in the line before. It makes of it what next and emit
// would, in a third of the time. Of any other line it does nothing and is false.
func (f *csvFile) usual(l line) bool {
	r := f.r
	if l.long || r.lastOwner == "" || strings.IndexByte(l.text, '"') >= 0 {
		return false
	}
	owner, entry, action, reason, rest, more := "", "", "", "", l.text, true
	for column := 0; more; column++ {
		cell := rest
		end := strings.IndexByte(rest, f.separator)
		if more = end >= 0; more {
			cell, rest = rest[:end], rest[end+1:]
		}
		switch column {
		case f.at.owner:
			owner = cell
		case f.at.entry:
			entry = cell
		case f.at.action:
			action = cell
		case f.at.reason:
			reason = cell
		default:
			return false
		}
	}
	if owner != r.lastOwner {
		return false
	}
	key, ok := addr.Simple(entry)
	if !ok || action != "" && action != "block" && action != "allow" {
		return false
	}
	if at, _ := controlIn(reason); at >= 0 {
		return false
	}
	r.take(l)
	if r.owner = r.lastKey; !r.countOwned() {
		return false
	}
	r.because(trim(reason))
	it := &r.usual
	it.Line, it.Key, it.Text, it.Owner = l.number, key, r.text(), r.owner
	it.Kind, it.Scope, it.Action, it.Reason = Addr, Exact, r.action, r.reason
	if key.Kind == addr.Domain {
		it.Kind, it.Scope = Domain, r.bare
	}
	if action == "allow" {
		it.Action = Allow
	}
	it.Class, it.Message = "", "" // Lint has written into that of the line before
	r.tally.lines++
	r.sum.Entries++
	r.err = r.emit(it)
	return true
}
