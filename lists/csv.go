package lists

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	csvSample = 20 // lines by which the separator is chosen

	// maxRecordLines and, in octets, maxLine bound a record whose quotes span
	// lines. One that does not end within them has a quote that was never closed.
	maxRecordLines = 1000
)

// csvFile reads records as RFC 4180 has them. It cuts them out of physical lines
// itself: a quote that is not closed then costs its own line, where encoding/csv
// would take the rest of the file for one cell and keep it all.
type csvFile struct {
	r         *reading
	want      csvWant
	scored    bool   // a record had the column of the score
	short     bool   // one had not
	ahead     []line // lines that were looked at and are still to be read
	separator byte
	at        columns
	owners    bool // separator and columns are known, and usual may read lines of owners
	same      usualLine

	// The record in hand.
	lines []line
	text  string // of its lines, joined by LF
	cells []cell
}

// csvHead is what the first worker finds out for all.
type csvHead struct {
	known     chan struct{} // closed when it is
	told      bool
	found     *csvHead // nil: there is nothing for others to read
	at        columns
	separator byte
}

// tell says what was found, once.
func (h *csvHead) tell(found *csvHead) {
	if h != nil && !h.told {
		h.told, h.found = true, found
		close(h.known)
	}
}

// wait waits until it is told.
func (h *csvHead) wait() *csvHead {
	<-h.known
	return h.found
}

type cell struct {
	text string // without quotes
	at   int    // where it begins in the record's text
}

// readCSV reads the cell of one column of each record.
func readCSV(r *reading) error {
	want, err := parseWant(r.arg)
	if err != nil {
		return err
	}
	f := csvFile{r: r, want: want}
	head := r.shared.head
	first := head == nil || r.lines.cutter.readers[0] == r.lines
	lent := false
	if first {
		defer head.tell(nil) // at the latest
		f.chooseSeparator()
		if err := f.findColumns(); err != nil && len(f.ahead) > 0 {
			return err
		}
	} else if found := head.wait(); found != nil {
		f.at, f.separator = found.at, found.separator
		f.owners = f.ofOwners()
	} else {
		return r.end()
	}
	for f.next() {
		f.emit(f.at)
		f.owners = len(f.ahead) == 0 && f.ofOwners()
		if first && !lent && len(f.ahead) == 0 {
			r.lines.cutter.lendPlain() // no line that was looked at is kept any more
			lent = true
		}
		if first && head != nil && len(f.ahead) == 0 {
			if want.score != "" {
				r.lines.alone() // whether any record has a score is told at the end
			}
			head.tell(&csvHead{at: f.at, separator: f.separator})
		}
	}
	if err := r.end(); err != nil || r.err != nil {
		return err
	}
	if f.short && !f.scored {
		return refusal(NoColumn, "no record has the column %s, the declared score", want.score)
	}
	return nil
}

// next takes the next well-formed record in hand, and emits what lies before it:
// blank lines and refused ones.
func (f *csvFile) next() bool {
	for f.r.err == nil {
		l, ok := f.pull()
		if !ok {
			return false
		}
		if f.owners && f.usual(l) {
			continue
		}
		if l.number <= f.at.header {
			f.above(l)
			continue
		}
		f.lines, f.text = append(f.lines[:0], l), l.text
		f.r.take(l)
		if !f.r.common(trim(l.text), func(string) bool { return false }) {
			err := f.split()
			if err == errOpenQuote {
				err = f.span()
			}
			if err == nil {
				return true
			}
			f.r.fail(Syntax, `"`, err.Error())
		}
		f.r.flush()
	}
	return false
}

// above skips the header, or a line above it.
func (f *csvFile) above(l line) {
	f.r.take(l)
	switch {
	case l.number == f.at.header:
		f.r.skip(Header, fmt.Sprintf("the entries are in column %d", f.at.entry+1))
	case trim(l.text) == "":
		f.r.skip(Blank, "")
	default:
		f.r.skip(Header, "above the header")
	}
	f.r.flush()
}

// pull takes the next line: one that was given back, or one of the file.
func (f *csvFile) pull() (line, bool) {
	if len(f.ahead) > 0 {
		l := f.ahead[0]
		f.ahead = f.ahead[1:]
		return l, true
	}
	return f.r.lines.next()
}

func (f *csvFile) split() (err error) {
	f.cells, err = splitRecord(f.cells[:0], f.text, f.separator)
	return err
}

// span adds the lines that an open quote spans to the record. If it is not closed
// well, all but the first are given back, to be read on their own. That stays
// linear: a line that leaves an open quote open has an even number of quotes, so
// that, read on its own, it opens none itself.
func (f *csvFile) span() error {
	for size := len(f.text); len(f.lines) < maxRecordLines; {
		l, ok := f.pull()
		if !ok {
			break
		}
		f.lines = append(f.lines, l)
		size += 1 + len(l.text)
		if at, _ := controlIn(l.text); l.long || size > maxLine || at >= 0 {
			break
		}
		if strings.Count(l.text, `"`)%2 == 0 {
			continue
		}
		f.text = joinLines(f.lines)
		if f.split() == nil {
			return nil
		}
		break
	}
	f.ahead = slices.Concat(f.lines[1:], f.ahead)
	f.lines = f.lines[:1]
	return errOpenQuote
}

func joinLines(lines []line) string {
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(l.text)
	}
	return b.String()
}

// emit emits the record in hand: the entry on the line where its cell begins.
func (f *csvFile) emit(where columns) {
	column, at := where.entry, 0
	if column < len(f.cells) {
		at = strings.Count(f.text[:f.cells[column].at], "\n")
	}
	for i, l := range f.lines {
		f.r.take(l)
		switch {
		case i != at:
			f.r.skip(Continuation, "")
		case column >= len(f.cells):
			f.r.fail(Syntax, "", fmt.Sprintf("the record ends before column %d", column+1))
		case where.score >= 0 && !f.reaches(where.score):
		case f.r.settings.PerRecipient:
			f.owned(where)
		case where.action >= 0 && where.action < len(f.cells) && !setAction(f.r, trim(f.cells[where.action].text)):
		default:
			f.r.cell(trim(f.cells[column].text))
		}
		f.r.flush()
	}
}

// cell reads a cell as an entry without marks and comments.
func (r *reading) cell(text string) {
	if text == "" {
		r.fail(Syntax, "", "an empty cell")
	} else if r.utf8(text) {
		r.entry(text)
	}
}

// chooseSeparator takes the one that a line of Excel names ("sep=;"), or that cuts most of the first lines into the
// same number of cells, two or more; where a line names the column, only one that shows the name. A file of one column
// has any. The lines that it looks at are ahead then: up to the first ones that may be records below a header.
func (f *csvFile) chooseSeparator() {
	for octets, records := 0, 0; len(f.ahead) < maxAhead && records < maxAbove && octets < aheadOctets; {
		l, ok := f.r.lines.next()
		if !ok {
			break
		}
		f.ahead = append(f.ahead, l)
		octets += len(l.text)
		text := trim(l.text)
		if text != "" && text[0] != '#' {
			records++
		}
		if sep := excelSeparator(text); sep != 0 && f.separator == 0 {
			f.separator = sep
		}
	}
	if f.separator != 0 {
		return
	}
	f.separator = ','
	best := 0
	for _, sep := range []byte(separators) {
		if score := f.score(sep); score > best {
			f.separator, best = sep, score
		}
	}
}

const separators = ",;\t|"

// excelSeparator is the separator that a line "sep=;" names, 0 if the line is none.
func excelSeparator(text string) byte {
	text = strings.Trim(text, `"`)
	if !hasFold(text, "sep=") || len(text) != len("sep=;") || strings.IndexByte(separators, text[4]) < 0 {
		return 0
	}
	return text[4]
}

// score rates a separator by the lines ahead, 0 for useless. Each point of view
// outweighs those after it: the header's name, the lines of one width, the width.
func (f *csvFile) score(sep byte) int {
	const lines, named = maxLine + 2, (maxLine + 2) * (maxAbove + 1)
	widths, name, seen := map[int]int{}, 0, 0
	for _, l := range f.ahead {
		if text := trim(l.text); text == "" || text[0] == '#' && !strings.ContainsRune(text, rune(sep)) {
			continue
		}
		if seen++; seen > csvSample {
			break
		}
		cells, err := splitRecord(f.cells[:0], l.text, sep)
		if err != nil {
			break // a record over several lines, or a fault: judge by what was
		}
		if slices.ContainsFunc(cells, func(c cell) bool { return f.isColumnName(headName(c.text)) }) {
			name = named
		}
		widths[len(cells)]++
	}
	best := 0
	for width, n := range widths {
		if width > 1 {
			best = max(best, name+n*lines+width)
		}
	}
	return best
}

func (f *csvFile) isColumnName(text string) bool {
	if f.want.column != "" {
		return strings.EqualFold(text, f.want.column)
	}
	return isEntryName(text)
}

var (
	errOpenQuote = errors.New("a quote that is not closed")
	errBareQuote = errors.New("a quote inside a cell that does not begin with one")
	errAfter     = errors.New("text between a closing quote and the separator")
)

// splitRecord cuts one record into cells (RFC 4180, section 2).
func splitRecord(cells []cell, text string, sep byte) ([]cell, error) {
	for i := 0; ; {
		if i == len(text) || text[i] != '"' {
			value, _, more := strings.Cut(text[i:], string(sep))
			if strings.IndexByte(value, '"') >= 0 {
				return cells, errBareQuote
			}
			cells = append(cells, cell{value, i})
			if !more {
				return cells, nil
			}
			i += len(value) + 1
			continue
		}
		end, doubled := closingQuote(text, i+1)
		if end < 0 {
			return cells, errOpenQuote
		}
		value := text[i+1 : end]
		if doubled {
			value = strings.ReplaceAll(value, `""`, `"`)
		}
		cells = append(cells, cell{value, i})
		switch i = end + 1; {
		case i == len(text):
			return cells, nil
		case text[i] != sep:
			return cells, errAfter
		}
		i++
	}
}

// closingQuote finds the quote that closes the cell whose text begins at i, -1 without
// one. doubled: there are quotes in the text, of which two stand for one.
func closingQuote(text string, i int) (end int, doubled bool) {
	for ; ; i += 2 {
		n := strings.IndexByte(text[i:], '"')
		if n < 0 {
			return -1, doubled
		}
		if i += n; i+1 == len(text) || text[i+1] != '"' {
			return i, doubled
		}
		doubled = true
	}
}
