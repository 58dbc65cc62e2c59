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
	said  bool // anything yet: the table stands apart from it
	files table
}

// newLintText writes into w, for a terminal of that width; 0: for none.
func newLintText(w *bufio.Writer, p paint, width int, all bool) *lintText {
	t := &lintText{w: w, paint: p, all: all, files: table{width: width}}
	t.files.add("file", "format", "lines", "entries", "keys", "errors", "skipped", "verdict")
	return t
}

func (t *lintText) item(file string, it *lists.Item) error {
	t.said = t.said || t.all || it.Kind != lists.Skip && it.Class != ""
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
		fmt.Fprintf(t.w, "%s: %s %s %s %s", where, it.Kind, visible(it.Name()), it.Scope, it.Action)
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
	hint := lists.Hint(it.Class)
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

func (t *lintText) summary(file string, s lists.Summary, keys int) error {
	verdict := string(s.Verdict)
	if s.Verdict == lists.Refused {
		t.said = true
		fmt.Fprintf(t.w, "%s: %s: %s\n", t.paint.bold(visible(file)), t.paint.red("refused"), visible(s.Why))
		if strings.HasPrefix(s.Why, string(lists.Ambiguous)+":") {
			fmt.Fprintln(t.w, t.paint.faint("  = Try --format F, and then write format = \"F\" into its [[list]]; --help has all F."))
		}
	} else if s.Why != "" {
		verdict += " (" + visible(s.Why) + ")"
	}
	num := func(n int) string { return grouped(uint64(n)) }
	t.files.add(visible(file), s.Format, num(s.Lines), num(s.Entries), num(keys), num(s.Errors), num(s.Skipped), verdict)
	return nil
}

func (t *lintText) end() error {
	if t.said {
		fmt.Fprintln(t.w)
	}
	return t.files.print(t.w, 2, 3, 4, 5, 6)
}
