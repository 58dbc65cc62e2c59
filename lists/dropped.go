package lists

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// keptLines is how many refused lines a Summary shows. The others are counted.
const keptLines = 10

// Bounds of the texts of a DroppedLine, in octets.
const (
	maxDroppedMessage = 300
	maxDroppedText    = 120
)

// Dropped tells which lines of a file were refused, so that none is lost in
// silence: how many of each class, and the first ones.
type Dropped struct {
	Classes []ClassCount // by the name of the class; none is 0

	// First are at most ten lines, by their numbers. Lines that are no mere
	// Unsupported ones go first where there are more: ad blockers' lists hold
	// thousands of those, and one typo among them must show.
	First []DroppedLine
}

// ClassCount is how many lines were refused for one reason.
type ClassCount struct {
	Class Class
	Lines int
}

// DroppedLine is one refused line.
type DroppedLine struct {
	Line    int
	Class   Class
	Message string // for people
	Text    string // the beginning of the line; it may hold any octets
}

// Total is how many lines were refused.
func (d *Dropped) Total() int {
	n := 0
	for _, c := range d.Classes {
		n += c.Lines
	}
	return n
}

// Count is how many lines were refused for this reason.
func (d *Dropped) Count(c Class) int {
	if i, ok := d.find(c); ok {
		return d.Classes[i].Lines
	}
	return 0
}

// String names the classes, the most frequent first: "12 syntax, 1 idna".
func (d *Dropped) String() string {
	all := slices.Clone(d.Classes)
	slices.SortStableFunc(all, func(a, b ClassCount) int { return cmp.Compare(b.Lines, a.Lines) })
	words := make([]string, len(all))
	for i, c := range all {
		words[i] = fmt.Sprintf("%d %s", c.Lines, c.Class)
	}
	return strings.Join(words, ", ")
}

func (d *Dropped) find(c Class) (int, bool) {
	return slices.BinarySearchFunc(d.Classes, c, func(have ClassCount, want Class) int { return cmp.Compare(have.Class, want) })
}

// add counts a refused line.
func (d *Dropped) add(it *Item) {
	d.count(it.Class, 1)
	if len(d.First) == keptLines && !before(it.Class, it.Line, &d.First[keptLines-1]) {
		return
	}
	message, text := cutText(it.Message, maxDroppedMessage), cutText(trim(it.Text), maxDroppedText)
	d.keep(DroppedLine{Line: it.Line, Class: it.Class, Message: strings.Clone(message), Text: strings.Clone(text)})
}

func (d *Dropped) count(c Class, lines int) {
	i, known := d.find(c)
	if !known {
		d.Classes = slices.Insert(d.Classes, i, ClassCount{Class: c})
	}
	d.Classes[i].Lines += lines
}

// keep puts a line in its place among the first ones.
func (d *Dropped) keep(l DroppedLine) {
	at := len(d.First)
	for at > 0 && before(l.Class, l.Line, &d.First[at-1]) {
		at--
	}
	d.First = slices.Insert(d.First, at, l)
	d.First = d.First[:min(len(d.First), keptLines)]
}

// before reports whether a refused line is to be shown rather than l.
func before(c Class, line int, l *DroppedLine) bool {
	if (c == Unsupported) != (l.Class == Unsupported) {
		return l.Class == Unsupported
	}
	return line < l.Line
}

// Gather adds what was refused elsewhere. Lines of several files keep no mark of theirs.
func (d *Dropped) Gather(o *Dropped) {
	for _, c := range o.Classes {
		d.count(c.Class, c.Lines)
	}
	for _, l := range o.First {
		d.keep(l)
	}
}

// order puts the lines that are kept in the order of the file.
func (d *Dropped) order() {
	slices.SortStableFunc(d.First, func(a, b DroppedLine) int { return cmp.Compare(a.Line, b.Line) })
}

// cutText is the beginning of text, cut at a character.
func cutText(text string, most int) string {
	if len(text) > most {
		cut := most
		for cut > most-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	return text
}
