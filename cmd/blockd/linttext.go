package main

import (
	"bufio"
	"fmt"
	"strings"

	"blockd/internal/term"
	"blockd/lists"
)

// lintText shows people what is wrong where, and ends with a table.
type lintText struct {
	w     *bufio.Writer
	paint term.Paint
	all   bool
	said  bool // anything yet: the table stands apart from it
	files term.Table
}

// newLintText writes into w, for a terminal of that width; 0: for none.
func newLintText(w *bufio.Writer, p term.Paint, width int, all bool) *lintText {
	t := &lintText{w: w, paint: p, all: all, files: term.Table{Width: width}}
	t.files.Add("file", "format", "lines", "entries", "keys", "errors", "skipped", "verdict")
	return t
}

func (t *lintText) item(file string, it *lists.Item) error {
	t.said = t.said || t.all || it.Kind != lists.Skip && it.Class != ""
	where := fmt.Sprintf("%s:%d", term.Visible(file), it.Line)
	switch {
	case it.Kind == lists.Err:
		if it.Column > 0 {
			where += fmt.Sprintf(":%d", it.Column)
		}
		fmt.Fprintf(t.w, "%s: %s: %s\n", t.paint.Bold(where), t.paint.Red(string(it.Class)), term.Visible(it.Message))
		t.excerpt(it)
	case it.Kind != lists.Skip && it.Class != "":
		fmt.Fprintf(t.w, "%s: %s: %s\n", t.paint.Bold(where), t.paint.Yellow("warning: "+string(it.Class)), term.Visible(it.Message))
		t.excerpt(it)
	case t.all && it.Kind == lists.Skip:
		fmt.Fprintln(t.w, t.paint.Faint(fmt.Sprintf("%s: skip: %s", where, it.Class)))
	case t.all:
		fmt.Fprintf(t.w, "%s: %s %s %s %s", where, it.Kind, term.Visible(it.Name()), it.Scope, it.Action)
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
	excerptColumns = 73
	leadColumns    = 49
)

// excerpt shows the line with a mark under the fault, and a hint beside it.
func (t *lintText) excerpt(it *lists.Item) {
	before, after := it.Text, ""
	marked := it.Column > 0 && it.Column <= len(it.Text)+1
	if marked {
		before, after = it.Text[:it.Column-1], it.Text[it.Column-1:]
	}
	before, after = term.Visible(before), term.Visible(after)
	if marked {
		before = term.ClipLeft(before, leadColumns)
	}
	line := term.Clip(before+after, excerptColumns)
	if line != "" {
		fmt.Fprintln(t.w, t.paint.Faint("  | ")+line)
	}
	hint := lists.Hint(it.Class)
	if marked {
		mark := strings.Repeat(" ", term.Columns(before)) + t.paint.Red("^")
		fmt.Fprintln(t.w, strings.TrimRight(t.paint.Faint("  | ")+mark+" "+t.paint.Faint(hint), " "))
	} else if hint != "" {
		fmt.Fprintln(t.w, t.paint.Faint("  = "+hint))
	}
}

func (t *lintText) summary(file string, s lists.Summary, keys int) error {
	verdict := string(s.Verdict)
	if s.Verdict == lists.Refused {
		t.said = true
		fmt.Fprintf(t.w, "%s: %s: %s\n", t.paint.Bold(term.Visible(file)), t.paint.Red("refused"), term.Visible(s.Why))
		if strings.HasPrefix(s.Why, string(lists.Ambiguous)+":") {
			fmt.Fprintln(t.w, t.paint.Faint("  = Try --format F, and then write format = \"F\" into its [[list]]; --help has all F."))
		}
	} else if s.Why != "" {
		verdict += " (" + term.Visible(s.Why) + ")"
	}
	num := func(n int) string { return term.Grouped(n) }
	t.files.Add(term.Visible(file), s.Format, num(s.Lines), num(s.Entries), num(keys), num(s.Errors), num(s.Skipped), verdict)
	return nil
}

func (t *lintText) end() error {
	if t.said {
		fmt.Fprintln(t.w)
	}
	return t.files.Print(t.w, 2, 3, 4, 5, 6)
}
