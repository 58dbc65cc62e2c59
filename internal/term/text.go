package term

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Visible makes foreign text safe to print: what a terminal would act on, what
// nobody can see, and what is not UTF-8 is shown as Go would write it. Nothing
// else is changed, so plain text is returned as it is.
func Visible(s string) string {
	if plain(s) { // nearly every text; the rest of this function was an eighth of the time of `blockd check -`
		return s
	}
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// plain reports whether a text is printable ASCII alone.
func plain(s string) bool {
	for i := range len(s) {
		if s[i]-' ' > '~'-' ' {
			return false
		}
	}
	return true
}

// Path is a path as people know it: from the current folder, where it is
// below that.
func Path(path string) string {
	if wd, err := os.Getwd(); err == nil && filepath.IsAbs(path) {
		if rel, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
	}
	return Visible(path)
}

// Counted is "no faults", "1 fault", "2 faults"; "1 entry", "2 entries".
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.HasSuffix(noun, "ey") {
		noun = stem + "ie"
	}
	if n == 0 {
		return "no " + noun + "s"
	}
	return Grouped(n) + " " + noun + "s"
}

// Grouped writes 1006826 as 1,006,826.
func Grouped[N int | int64 | uint64](n N) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Octets writes a size for people: 512 B, 14.2 KiB, 58.9 MiB.
func Octets(n int64) string {
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

// Moment is a time for people, to the minute, where this machine is.
func Moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }

// Span is about how long d is, 0 at least.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 2*365*day:
		return fmt.Sprintf("%dd", d/day)
	default:
		return fmt.Sprintf("%dy", d/(365*day))
	}
}

// Clip cuts the end off a text that is wider than width columns, and marks the cut.
func Clip(s string, width int) string {
	if Columns(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		if n += columnsOf(r); n >= width {
			return s[:i] + "…"
		}
	}
	return s
}

// ClipLeft is Clip for the beginning of a text.
func ClipLeft(s string, width int) string {
	n := Columns(s)
	if n <= width {
		return s
	}
	for i, r := range s {
		if n < width {
			return "…" + s[i:]
		}
		n -= columnsOf(r)
	}
	return "…"
}

// Fold breaks text between words into lines of at most so many columns; a longer word
// stands alone.
func Fold(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && Columns(line)+1+Columns(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// JSON writes v in a line, for programs.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// JSONLines writes each of all in a line.
func JSONLines[T any](w io.Writer, all []T) error {
	for i := range all {
		if err := JSON(w, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// Share is n as a part of all.
func Share(n, of uint64) float64 { return float64(n) / float64(max(of, 1)) }

// Percent is a share in whole per cent, in which little is not nothing and nearly
// all is not all.
func Percent(n, of uint64) string {
	switch p := 100 * Share(n, of); {
	case of == 0:
		return ""
	case n > 0 && p < 1:
		return "<1%"
	case n < of && p > 99:
		return ">99%"
	default:
		return fmt.Sprintf("%.0f%%", p)
	}
}

// Word is a text as one word of a shell.
func Word(s string) string {
	if s != "" && PlainWord(s) {
		return s
	}
	return "'" + strings.ReplaceAll(Visible(s), "'", `'\''`) + "'"
}

// PlainWord reports a text that a shell takes as it is.
func PlainWord(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !(r == '@' || r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z')
	})
}
