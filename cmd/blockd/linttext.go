package main

import (
	"bufio"
	"fmt"
	"strings"

	"blockd/lists"
)

// lintText shows people what is wrong where, and ends with a table.
type lintText struct {
	w     *bufio.Writer
	paint paint
	all   bool
	files table
}

func newLintText(w *bufio.Writer, p paint, all bool) *lintText {
	t := &lintText{w: w, paint: p, all: all}
	t.files.add("file", "format", "lines", "entries", "keys", "errors", "skipped", "verdict")
	return t
}

func (t *lintText) item(file string, it *lists.Item) error {
	where := fmt.Sprintf("%s:%d", visible(file), it.Line)
	switch {
	case it.Kind == lists.Err:
		if it.Column > 0 {
			where += fmt.Sprintf(":%d", it.Column)
		}
		fmt.Fprintf(t.w, "%s: %s: %s\n", t.paint.bold(where), t.paint.red(string(it.Class)), visible(it.Message))
		t.excerpt(it)
	case it.Kind != lists.Skip && it.Class != "":
		fmt.Fprintf(t.w, "%s: %s: %s\n", t.paint.bold(where), t.paint.yellow("warning: "+string(it.Class)), visible(it.Message))
		t.excerpt(it)
	case t.all && it.Kind == lists.Skip:
		fmt.Fprintln(t.w, t.paint.faint(fmt.Sprintf("%s: skip: %s", where, it.Class)))
	case t.all:
		fmt.Fprintf(t.w, "%s: %s %s %s %s", where, it.Kind, visible(keyText(it)), it.Scope, it.Action)
		if it.Reason != "" {
			fmt.Fprintf(t.w, " %q", it.Reason)
		}
		fmt.Fprintln(t.w)
	}
	return nil // a failed write stays in w and comes out of Flush
}

// The excerpt of a line is at most excerptColumns wide, with at most
// leadColumns before the fault: it fits a terminal of 80.
const (
	excerptColumns = 72
	leadColumns    = 48
)

// excerpt shows the line with a mark under the fault, and a hint beside it.
func (t *lintText) excerpt(it *lists.Item) {
	before, after := it.Text, ""
	marked := it.Column > 0 && it.Column <= len(it.Text)+1
	if marked {
		before, after = it.Text[:it.Column-1], it.Text[it.Column-1:]
	}
	before, after = visible(before), visible(after)
	if marked {
		before = clipLeft(before, leadColumns)
	}
	line := clipRight(before+after, excerptColumns)
	if line != "" {
		fmt.Fprintln(t.w, t.paint.faint("  | ")+line)
	}
	hint := hintFor(it.Class)
	if marked {
		mark := strings.Repeat(" ", columns(before)) + t.paint.red("^")
		fmt.Fprintln(t.w, strings.TrimRight(t.paint.faint("  | ")+mark+" "+t.paint.faint(hint), " "))
	} else if hint != "" {
		fmt.Fprintln(t.w, t.paint.faint("  = "+hint))
	}
}

func clipRight(s string, most int) string {
	n := 0
	for i, r := range s {
		if n += columnsOf(r); n > most {
			return s[:i] + "…"
		}
	}
	return s
}

func clipLeft(s string, most int) string {
	n := columns(s)
	for i, r := range s {
		if n <= most {
			if i == 0 {
				return s
			}
			return "…" + s[i:]
		}
		n -= columnsOf(r)
	}
	return s
}

// hintFor says what to do about a class; "" where the message says it all.
func hintFor(c lists.Class) string {
	switch c {
	case "bad-utf8":
		return "save the file as UTF-8"
	case "invisible", "control", "nul":
		return "type the line anew: something in it cannot be seen"
	case "idna":
		return "write the name as the sender's server does, xn--... form"
	case "too-broad":
		return "it would cover far too much: name domains one by one"
	case "public-suffix":
		return "everybody's domain: name the ones below it"
	case "null-sender":
		return "bounces must get through: RFC 5321, 4.5.5"
	case "not-a-sink":
		return "only 0.0.0.0, 127.x, :: and ::1 mark a blocked name"
	case "missing-value":
		return "want a key and an action, such as REJECT"
	case "unsupported":
		return "only whole addresses and domains can be looked up"
	case "unsupported-action":
		return "REJECT, OK, DEFER and DISCARD are known"
	case "conflict":
		return "take one of the two lines out"
	}
	return ""
}

func (t *lintText) summary(file string, s lists.Summary, keys int) error {
	verdict := string(s.Verdict)
	if s.Verdict == lists.Refused {
		fmt.Fprintf(t.w, "%s: %s: %s\n", t.paint.bold(visible(file)), t.paint.red("refused"), visible(s.Why))
	} else if s.Why != "" {
		verdict += " (" + visible(s.Why) + ")"
	}
	num := func(n int) string { return grouped(uint64(n)) }
	t.files.add(visible(file), s.Format, num(s.Lines), num(s.Entries), num(keys), num(s.Errors), num(s.Skipped), verdict)
	return nil
}

func (t *lintText) end() error {
	if t.w.Buffered() > 0 || t.w.Size() == 0 {
		fmt.Fprintln(t.w)
	}
	t.files.print(t.w, 2, 3, 4, 5, 6)
	return nil
}
