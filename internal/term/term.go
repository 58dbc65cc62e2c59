// Package term is what a terminal shows: text that is safe to print, tables, colours, bars
// and counted words.
package term

import (
	"io"
	"os"

	terminal "golang.org/x/term"
)

// PlainWidth is for what is no terminal, and what one shows without a break more often
// than not.
const PlainWidth = 100

// IsTerminal reports whether w is a terminal, where people look.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && terminal.IsTerminal(int(f.Fd()))
}

// Width is how many columns the terminal has that w is; 0 if it is none.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := terminal.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// Paint is how a text stands out on a terminal; the zero Paint changes nothing.
type Paint struct{ on bool }

// NewPaint colours a terminal only, and not where NO_COLOR is set (no-color.org)
// or the terminal has no colours.
func NewPaint(w io.Writer) Paint {
	return Paint{IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Colours is a Paint for what others show, who know whether it is a terminal.
func Colours(on bool) Paint { return Paint{on} }

// On reports whether p changes anything.
func (p Paint) On() bool { return p.on }

func (p Paint) sgr(code, s string) string {
	if !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p Paint) Bold(s string) string   { return p.sgr("1", s) }
func (p Paint) Faint(s string) string  { return p.sgr("2", s) }
func (p Paint) Red(s string) string    { return p.sgr("1;31", s) }
func (p Paint) Green(s string) string  { return p.sgr("32", s) }
func (p Paint) Yellow(s string) string { return p.sgr("33", s) }
