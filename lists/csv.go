package lists

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	csvSample  = 20    // lines by which the separator is chosen
	maxColumns = 10000 // bound of a column number that can be declared

	// maxRecordLines and, in octets, maxLine bound a record whose quotes span
	// lines. One that does not end within them has a quote that was never closed.
	maxRecordLines = 1000
)

// csvHeaders are the names by which the column is found, the best first.
var csvHeaders = [...]string{"email", "address", "sender", "domain", "ip", "network"}

// csvFile reads records as RFC 4180 has them. It cuts them out of physical lines
// itself: a quote that is not closed then costs its own line, where encoding/csv
// would take the rest of the file for one cell and keep it all.
type csvFile struct {
	r         *reading
	ahead     []line // lines that were looked at and are still to be read
	separator byte

	// The record in hand.
	lines []line
	text  string // of its lines, joined by LF
	cells []cell
}

type cell struct {
	text string // without quotes
	at   int    // where it begins in the record's text
}

// readCSV reads the cell of one column of each record.
func readCSV(r *reading) error {
	f := csvFile{r: r}
	f.chooseSeparator()
	column := -1
	for f.next() {
		header := false
		if column < 0 {
			var err error
			if column, header, err = f.findColumn(); err != nil {
				return err
			}
		}
		f.emit(column, header)
	}
	return r.end()
}

// next takes the next well-formed record in hand, and emits what lies before it:
// blank lines and refused ones.
func (f *csvFile) next() bool {
	for f.r.err == nil {
		l, ok := f.pull()
		if !ok {
			return false
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
func (f *csvFile) emit(column int, header bool) {
	at := 0
	if column < len(f.cells) && !header {
		at = strings.Count(f.text[:f.cells[column].at], "\n")
	}
	for i, l := range f.lines {
		f.r.take(l)
		switch {
		case i != at:
			f.r.skip(Continuation, "")
		case header:
			f.r.skip(Header, fmt.Sprintf("the entries are in column %d", column+1))
		case column >= len(f.cells):
			f.r.fail(Syntax, "", fmt.Sprintf("the record ends before column %d", column+1))
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

// findColumn settles by the first record which column holds the entries, from 0,
// and whether that record is a header.
func (f *csvFile) findColumn() (column int, header bool, err error) {
	named := func(name string) int {
		return slices.IndexFunc(f.cells, func(c cell) bool { return strings.EqualFold(trim(c.text), name) })
	}
	arg := f.r.arg
	switch n, numErr := strconv.Atoi(arg); {
	case arg == "":
		for _, name := range csvHeaders {
			if i := named(name); i >= 0 {
				return i, true, nil
			}
		}
	case numErr != nil:
		if i := named(arg); i >= 0 {
			return i, true, nil
		}
		return 0, false, refusal(NoColumn, "the header has no %q", arg)
	case n > len(f.cells):
		return 0, false, refusal(NoColumn, "%d cells in the first record, column %d was declared", len(f.cells), n)
	default:
		column = n - 1
	}
	// What has neither dot, "@" nor colon is no sender that anybody lists.
	first := trim(f.cells[column].text)
	return column, first != "" && !strings.ContainsAny(first, ".@:"), nil
}

// checkColumn judges the argument of the format: a number or a header's name.
func checkColumn(arg string) error {
	if !allDigits(arg) {
		return nil
	}
	if n, err := strconv.Atoi(arg); err != nil || n < 1 || n > maxColumns {
		return fmt.Errorf("a column is 1 to %d, or the name of a header", maxColumns)
	}
	return nil
}

// chooseSeparator takes the one that cuts most of the first lines into the same
// number of cells, two or more; where the first line names the column, only one
// that shows the name. A file of one column has any.
func (f *csvFile) chooseSeparator() {
	for len(f.ahead) < csvSample {
		l, ok := f.r.lines.next()
		if !ok {
			break
		}
		f.ahead = append(f.ahead, l)
	}
	f.separator = ','
	best := 0
	for _, sep := range []byte(",;\t|") {
		if score := f.score(sep); score > best {
			f.separator, best = sep, score
		}
	}
}

// score rates a separator by the lines ahead, 0 for useless. Each point of view
// outweighs those after it: the header's name, the lines of one width, the width.
func (f *csvFile) score(sep byte) int {
	const lines, named = maxLine + 2, (maxLine + 2) * (csvSample + 1)
	widths, name, first := map[int]int{}, 0, true
	for _, l := range f.ahead {
		cells, err := splitRecord(f.cells[:0], l.text, sep)
		if err != nil {
			break // a record over several lines, or a fault: judge by what was
		}
		if first && slices.ContainsFunc(cells, func(c cell) bool { return f.isColumnName(trim(c.text)) }) {
			name = named
		}
		first = first && trim(l.text) == ""
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
	if f.r.arg != "" {
		return strings.EqualFold(text, f.r.arg)
	}
	return slices.ContainsFunc(csvHeaders[:], func(h string) bool { return strings.EqualFold(h, text) })
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
		end, doubled := i+1, false
		for ; ; end += 2 {
			n := strings.IndexByte(text[end:], '"')
			if n < 0 {
				return cells, errOpenQuote
			}
			end += n
			if !strings.HasPrefix(text[end:], `""`) {
				break
			}
			doubled = true
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
