package lists

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxColumns bounds a column number that can be declared.
const maxColumns = 10000

// csvHeaders are the names by which the column is found, the best first.
var csvHeaders = [...]string{"email", "address", "sender", "domain", "ip", "network"}

// csvWant is what the format's argument asks for: "COLUMN", or "COLUMN,SCORE>=N"
// for the records whose column SCORE has at least N. Columns are numbers from 1 or
// names of the header.
type csvWant struct {
	column string // "": one of csvHeaders, else the first
	score  string // "": every record
	least  float64
}

// columns are where a file has them, from 0; -1: none is asked for, or the file has none.
type columns struct {
	entry, score          int
	owner, action, reason int // of a list per recipient
}

// reaches reports whether the record in hand has the score that is asked for. If
// not, it says so of the line.
func (f *csvFile) reaches(column int) bool {
	if column >= len(f.cells) {
		f.short = true
		return f.r.fail(Syntax, "", fmt.Sprintf("the record ends before column %d, its score", column+1))
	}
	f.scored = true
	text := trim(f.cells[column].text)
	score, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || score != score:
		return f.r.fail(Syntax, text, "a score that is no number")
	case score < f.want.least:
		f.r.skip(BelowScore, fmt.Sprintf("a score of %s", text))
		return false
	}
	return true
}

// findColumns settles by the first record which columns are asked for, and whether
// that record is a header.
func (f *csvFile) findColumns() (at columns, header bool, err error) {
	at = columns{score: -1, owner: -1, action: -1, reason: -1}
	if header, err = f.findOwner(&at); err != nil {
		return at, header, err
	}
	if allDigits(f.want.score) {
		// Real lists begin with lines that are no records and have no such column:
		// each record is judged by itself, and the file at its end.
		at.score, _ = strconv.Atoi(f.want.score)
		at.score--
	} else if f.want.score != "" {
		isHeader := false
		if at.score, isHeader, err = f.findColumn(f.want.score); err != nil {
			return at, false, err
		}
		header = header || isHeader
	}
	named := false
	if f.want.column != "" {
		at.entry, named, err = f.findColumn(f.want.column)
	} else {
		for _, name := range csvHeaders {
			if i := f.named(name); i >= 0 {
				at.entry, named = i, true
				break
			}
		}
	}
	if err != nil || named || header {
		return at, true, err
	}
	// What has neither dot, "@" nor colon is no sender that anybody lists.
	first := trim(f.cells[at.entry].text)
	return at, first != "" && !strings.ContainsAny(first, ".@:"), nil
}

// findOwner finds the columns of a list per recipient by their names. header: there is one of them.
func (f *csvFile) findOwner(at *columns) (header bool, err error) {
	owner := f.named("owner")
	s := &f.r.settings
	switch {
	case !s.PerRecipient && owner >= 0 && strings.EqualFold(f.want.column, "entry"):
		return false, refusal(NoColumn, `the entries have a column "owner", and would be everybody's; the list needs per_recipient = true`)
	case !s.PerRecipient:
		return false, nil
	case owner < 0 && s.Owner.Text == "":
		return false, refusal(NoColumn, `the first record is no header with an "owner", such as owner,entry,action,reason`)
	case s.Owner.Text != "":
		owner = -1 // the file's name says it
	}
	at.owner, at.action, at.reason = owner, f.named("action"), f.named("reason")
	return at.owner >= 0 || at.action >= 0 || at.reason >= 0, nil
}

// findColumn finds one column; named tells that the record in hand is the header
// that has its name.
func (f *csvFile) findColumn(text string) (column int, named bool, err error) {
	if allDigits(text) {
		n, _ := strconv.Atoi(text) // parseWant has judged it
		if n > len(f.cells) {
			return 0, false, refusal(NoColumn, "%d cells in the first record, column %d was declared", len(f.cells), n)
		}
		return n - 1, false, nil
	}
	if i := f.named(text); i >= 0 {
		return i, true, nil
	}
	return 0, false, refusal(NoColumn, "the header has no %q", text)
}

// named returns the column whose cell in the record in hand is name, -1 if none is.
func (f *csvFile) named(name string) int {
	return slices.IndexFunc(f.cells, func(c cell) bool { return strings.EqualFold(trim(c.text), name) })
}

// checkColumn judges the argument of the format.
func checkColumn(arg string) error {
	_, err := parseWant(arg)
	return err
}

func parseWant(arg string) (csvWant, error) {
	column, score, scored := strings.Cut(arg, ",")
	want := csvWant{column: column}
	if scored {
		name, least, ok := strings.Cut(score, ">=")
		n, err := strconv.ParseFloat(least, 64)
		if !ok || name == "" || err != nil || n != n {
			return want, fmt.Errorf("behind the comma stands a column with the least score in it: %q", "count>=3")
		}
		want.score, want.least = name, n
	}
	for _, text := range []string{want.column, want.score} {
		if n, err := strconv.Atoi(text); allDigits(text) && (err != nil || n < 1 || n > maxColumns) {
			return want, fmt.Errorf("a column is 1 to %d, or the name of a header", maxColumns)
		}
	}
	return want, nil
}
