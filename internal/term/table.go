package term

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Table is text in columns that line up, whatever script it is in.
type Table struct {
	Width int // of the terminal that it is for; 0: any, or what Print finds
	rows  [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Print writes the rows. Columns whose number is in right are flush right:
// counts, that the eye compares.
func (t *Table) Print(w io.Writer, right ...int) error {
	t.Width = cmp.Or(t.Width, Width(w))
	_, err := io.WriteString(w, strings.Join(t.Lines(right...), "\n")+"\n")
	return err
}

// foldIndent is how far the columns stand in that a narrow terminal has below the others.
const foldIndent = "    "

// Lines are the rows with two blanks between columns. Where the terminal has no room
// for that it is one; and where that is not enough, the last columns of all rows stand
// on lines of their own, so that they still line up and nothing is lost.
func (t *Table) Lines(right ...int) []string {
	var wide []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(wide) {
				wide = append(wide, 0)
			}
			wide[i] = max(wide[i], Columns(cell))
		}
	}
	gap, folds := t.layout(wide)
	var lines []string
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			if slices.Contains(folds, i) {
				lines = append(lines, strings.TrimRight(line.String(), " "))
				line.Reset()
				line.WriteString(foldIndent)
			}
			fill := strings.Repeat(" ", wide[i]-Columns(cell))
			if slices.Contains(right, i) {
				cell, fill = fill+cell, ""
			}
			line.WriteString(cell + fill + gap)
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}

// layout says what stands between columns of these widths, and which of them begin a
// new line.
func (t *Table) layout(wide []int) (gap string, folds []int) {
	gap = "  "
	if t.Width == 0 || sum(wide)+len(gap)*(len(wide)-1) <= t.Width {
		return gap, nil
	}
	if sum(wide)+len(wide)-1 <= t.Width {
		return " ", nil
	}
	at := 0
	for i, n := range wide {
		if i > 0 && at+n > t.Width {
			folds = append(folds, i)
			at = len(foldIndent)
		}
		at += n + len(gap)
	}
	return gap, folds
}

func sum(numbers []int) (n int) {
	for _, m := range numbers {
		n += m
	}
	return n
}

// Columns is how wide s stands on a terminal. The colours of Paint take no room.
func Columns(s string) int {
	n, colour := 0, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			colour = true
		case colour:
			colour = r != 'm'
		default:
			n += columnsOf(r)
		}
	}
	return n
}

func columnsOf(r rune) int {
	if unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
