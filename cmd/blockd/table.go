package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// table is text in columns that line up, whatever script it is in.
type table struct {
	rows  [][]string
	width int // of the terminal that it is for; 0: any, or what print finds
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the rows. Columns whose number is in right are flush right:
// counts, that the eye compares.
func (t *table) print(w io.Writer, right ...int) error {
	t.width = cmp.Or(t.width, terminalWidth(w))
	_, err := io.WriteString(w, strings.Join(t.lines(right...), "\n")+"\n")
	return err
}

// foldIndent is how far the columns stand in that a narrow terminal has below the others.
const foldIndent = "    "

// lines are the rows with two blanks between columns. Where the terminal has no room
// for that it is one; and where that is not enough, the last columns of all rows stand
// on lines of their own, so that they still line up and nothing is lost.
func (t *table) lines(right ...int) []string {
	var wide []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(wide) {
				wide = append(wide, 0)
			}
			wide[i] = max(wide[i], columns(cell))
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
			fill := strings.Repeat(" ", wide[i]-columns(cell))
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
func (t *table) layout(wide []int) (gap string, folds []int) {
	gap = "  "
	if t.width == 0 || sum(wide)+len(gap)*(len(wide)-1) <= t.width {
		return gap, nil
	}
	if sum(wide)+len(wide)-1 <= t.width {
		return " ", nil
	}
	at := 0
	for i, n := range wide {
		if i > 0 && at+n > t.width {
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

// columns is how wide s stands on a terminal. The colours of paint take no room.
func columns(s string) int {
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

// visible makes foreign text safe to print: what a terminal would act on, what
// nobody can see, and what is not UTF-8 is shown as Go would write it. Nothing
// else is changed, so plain text is returned as it is.
func visible(s string) string {
	clean := func(r rune) bool { return unicode.IsPrint(r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case clean(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// shownPath is a path as people know it: from the current folder, where it is
// below that.
func shownPath(path string) string {
	if wd, err := os.Getwd(); err == nil && filepath.IsAbs(path) {
		if rel, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
	}
	return visible(path)
}

// counted is "no faults", "1 fault", "2 faults"; "1 entry", "2 entries".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.HasSuffix(noun, "ey") {
		noun = stem + "ie"
	}
	if n == 0 {
		return "no " + noun + "s"
	}
	return grouped(uint64(n)) + " " + noun + "s"
}

// grouped writes 1006826 as 1,006,826.
func grouped(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// octets writes a size for people: 512 B, 14.2 KiB, 58.9 MiB.
func octets(n int64) string {
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, unit := float64(n), -1
	for f >= 1<<10 && unit < 3 {
		f /= 1 << 10
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[unit])
}

// onTerminal reports whether w is a terminal, where people look.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth is how many columns the terminal has that w is; 0 if it is none.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// paint is how a text stands out on a terminal; the zero paint changes nothing.
type paint struct{ on bool }

// newPaint colours a terminal only, and not where NO_COLOR is set (no-color.org)
// or the terminal has no colours.
func newPaint(w io.Writer) paint {
	return paint{onTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p paint) sgr(code, s string) string {
	if !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) bold(s string) string   { return p.sgr("1", s) }
func (p paint) faint(s string) string  { return p.sgr("2", s) }
func (p paint) red(s string) string    { return p.sgr("1;31", s) }
func (p paint) green(s string) string  { return p.sgr("32", s) }
func (p paint) yellow(s string) string { return p.sgr("33", s) }
