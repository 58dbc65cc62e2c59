package lists

import (
	"strings"

	"blockd/mail/addr"
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

// usualLine is what lines in a row mostly have in common: all but the cell of the entry.
type usualLine struct {
	owner         string // "" = no line was learned
	before, after []byte // the entry's cell, with its separators
	allow         bool
	reason        string
}

// entryOf is the cell of the entry in a line that has everything else from the line before.
func (u *usualLine) entryOf(text string, separator byte) (entry string, ok bool) {
	from, end := len(u.before), len(text)-len(u.after)
	if from > end || text[:from] != string(u.before) || text[end:] != string(u.after) {
		return "", false
	}
	entry = text[from:end]
	return entry, strings.IndexByte(entry, separator) < 0
}

// usual reads a line that is what nearly all are in a long table of owners: the columns that are asked for and no others,
// without quotes, and an address or a name of the same owner as in the line before. It makes of it what next and emit
// would, in a fifth of the time. Of any other line it does nothing and is false.
func (f *csvFile) usual(l line) bool {
	r := f.r
	if l.long || r.lastOwner == "" {
		return false
	}
	entry, same := f.same.entryOf(l.text, f.separator)
	same = same && f.same.owner == r.lastOwner
	if !same {
		var ok bool
		if entry, ok = f.learn(l.text); !ok {
			return false
		}
	}
	key, ok := addr.Simple(entry) // which has no quote
	if !ok {
		return false
	}
	r.take(l)
	if r.owner = r.lastKey; !r.countOwned() {
		return false
	}
	it := &r.usual
	it.Line, it.Key, it.Text, it.Owner = l.number, key, r.text(), r.owner
	it.Kind, it.Scope, it.Action, it.Reason = Addr, Exact, r.action, f.same.reason
	if key.Kind == addr.Domain {
		it.Kind, it.Scope = Domain, r.bare
	}
	if f.same.allow {
		it.Action = Allow
	}
	it.Class, it.Message = "", "" // Lint has written into that of the line before
	r.tally.lines++
	r.sum.Entries++
	r.err = r.emit(it)
	return true
}

// learn cuts a line of the same owner as the line before, and remembers all of it but the entry.
func (f *csvFile) learn(text string) (entry string, ok bool) {
	r := f.r
	u := &f.same
	u.owner = ""
	if strings.IndexByte(text, '"') >= 0 {
		return "", false
	}
	owner, action, reason, from, at, more := "", "", "", -1, 0, true
	for column := 0; more; column++ {
		cell := text[at:]
		end := strings.IndexByte(cell, f.separator)
		if more = end >= 0; more {
			cell = cell[:end]
		}
		switch column {
		case f.at.owner:
			owner = cell
		case f.at.entry:
			entry, from = cell, at
		case f.at.action:
			action = cell
		case f.at.reason:
			reason = cell
		default:
			return "", false
		}
		at += len(cell) + 1
	}
	if from < 0 || owner != r.lastOwner || action != "" && action != "block" && action != "allow" {
		return "", false
	}
	if at, _ := controlIn(reason); at >= 0 {
		return "", false
	}
	said := r.settings.Reason
	if reason = trim(reason); reason != "" {
		said = cleanReason(reason)
	}
	if said != u.reason {
		u.reason = strings.Clone(said) // the line is gone with its block
	}
	u.before, u.after, u.allow = append(u.before[:0], text[:from]...), append(u.after[:0], text[from+len(entry):]...), action == "allow"
	u.owner = r.lastOwner
	return entry, true
}
