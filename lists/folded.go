package lists

import "strings"

// maxTail and, in octets, maxLine bound the lines that wait for a logical line to
// be complete. No table in use folds an entry over more than a few.
const maxTail = 256

// folded gathers one logical line: a physical line and the indented ones that
// continue it. Comments and blank lines in between do not end it, as in Postfix.
type folded struct {
	r       *reading
	comment func(string) bool
	parse   func(*reading, string)
	open    bool            // head holds a logical line
	full    bool            // its tail is full: continuations are read over
	head    line            // its first physical line
	joined  strings.Builder // its text beyond head
	tail    []line          // behind head, which wait for head to be emitted
	size    int             // of the tail, in octets
}

// eachFolded reads a format in which a line that begins with a blank continues
// the one before. comment and parse are as for eachLine; parse gets the logical
// line, and what it finds is of the first physical one.
func eachFolded(comment func(string) bool, parse func(*reading, string)) func(*reading) error {
	return func(r *reading) error {
		f := folded{r: r, comment: comment, parse: parse}
		for r.next() {
			f.add(r.at)
		}
		f.release()
		return r.end()
	}
}

// add takes the next physical line.
func (f *folded) add(l line) {
	text := trim(l.text)
	switch {
	case !l.long && text == "":
		f.behind(l, Blank)
	case f.comment(text):
		f.behind(l, Comment)
	case !indented(l.text):
		f.release()
		f.head, f.open = l, true
	case !f.open && !f.full:
		f.r.take(l)
		f.r.fail(Syntax, text, "begins with a blank, but there is no line that it could continue")
		f.r.flush()
	default:
		f.behind(l, Continuation)
	}
}

// indented tells a line that continues the one before. Wide blanks do not make it
// one: to Postfix and Exim they are part of a key, and that key would be lost.
func indented(text string) bool { return text != "" && (text[0] == ' ' || text[0] == '\t') }

// behind puts a line behind head, or emits it at once where there is none.
func (f *folded) behind(l line, c Class) {
	spoilt := l.long && c == Continuation
	if at, _ := controlIn(l.text); at >= 0 || spoilt {
		// It is refused by itself; what it would have continued stands.
		f.release()
		f.full = true
	}
	if !f.open {
		f.r.continuation(l, f.comment)
		return
	}
	if c == Continuation {
		f.joined.WriteByte(' ')
		f.joined.WriteString(trim(l.text))
	}
	f.tail, f.size = append(f.tail, l), f.size+len(l.text)
	if len(f.tail) == maxTail || f.size > maxLine {
		f.release()
		f.full = true
	}
}

// continuation emits a line that only continues others, or stands between those as a
// comment or a blank line.
func (r *reading) continuation(l line, comment func(string) bool) {
	r.take(l)
	if !r.common(trim(l.text), comment) {
		r.skip(Continuation, "")
	}
	r.flush()
}

// release parses and emits what was gathered, in line order.
func (f *folded) release() {
	if f.open {
		f.r.take(f.head)
		text := trim(f.head.text)
		if !f.r.common(text, f.comment) {
			f.parse(f.r, text+f.joined.String())
		}
		f.r.flush()
		f.joined.Reset()
	}
	for _, l := range f.tail {
		f.r.continuation(l, f.comment)
	}
	f.tail, f.size, f.open, f.full = f.tail[:0], 0, false, false
}
