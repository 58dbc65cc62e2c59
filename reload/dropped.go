package reload

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"blockd/index"
	"blockd/lists"
)

// tellDropped logs and counts the refused lines of the files in table that were not refused of
// the same file before, wherever they stood in it.
func (r *Reloader) tellDropped(table []index.ListInfo) {
	told := map[file]*lists.Dropped{}
	for i := range table {
		row := &table[i]
		key := fileOf(*row)
		now, before := &row.Summary.Dropped, r.dropped[key]
		if before == nil {
			before = &lists.Dropped{}
		}
		told[key] = now
		if row.Summary.Verdict != lists.Refused {
			r.tellLines(row, newLines(now, before), before)
		}
	}
	r.dropped = told
}

// tellLines logs and counts the news about the refused lines of one file.
func (r *Reloader) tellLines(row *index.ListInfo, news []lists.DroppedLine, before *lists.Dropped) {
	now := &row.Summary.Dropped
	file := []slog.Attr{slog.String("list", row.Source.List), slog.String("file", row.Source.Path)}
	fresh := map[lists.Class]int{}
	for _, l := range news {
		fresh[l.Class]++
		r.log.LogAttrs(context.Background(), slog.LevelWarn, "line refused", append(slices.Clone(file), slog.Int("line", l.Line),
			slog.String("class", string(l.Class)), slog.String("error", l.Message), slog.String("text", l.Text))...)
	}
	more := false
	for _, c := range now.Classes {
		came := c.Lines - before.Count(c.Class)
		more = more || came > fresh[c.Class]
		if n := max(came, fresh[c.Class]); n > 0 {
			r.metrics.dropped.WithLabelValues(row.Source.List, string(c.Class)).Add(float64(n))
		}
	}
	if more {
		r.log.LogAttrs(context.Background(), slog.LevelWarn, "more lines refused", append(file, slog.Int("refused", now.Total()),
			slog.Int("told", len(now.First)), slog.String("classes", now.String()), slog.String("hint", "blockd lint shows them all"))...)
	}
}

// newLines returns the lines shown of now that were not shown of before. They are compared by
// text, since a line above them changes their numbers.
func newLines(now, before *lists.Dropped) []lists.DroppedLine {
	type line struct {
		class lists.Class
		text  string
	}
	had := map[line]int{}
	for _, l := range before.First {
		had[line{l.Class, l.Text}]++
	}
	return slices.DeleteFunc(slices.Clone(now.First), func(l lists.DroppedLine) bool {
		k := line{l.Class, l.Text}
		had[k]--
		return had[k] >= 0
	})
}

// droppedRemarks returns a line for each list with refused lines: how many, why, and where one
// of them stands.
func droppedRemarks(table []index.ListInfo) []string {
	type total struct {
		list  string
		files int
		all   lists.Dropped
		file  string // of shown
		shown *lists.DroppedLine
	}
	var totals []total
	for i := range table {
		row := &table[i]
		d := &row.Summary.Dropped
		if len(d.Classes) == 0 || row.Summary.Verdict == lists.Refused {
			continue
		}
		at := slices.IndexFunc(totals, func(t total) bool { return t.list == row.Source.List })
		if at < 0 {
			at = len(totals)
			totals = append(totals, total{list: row.Source.List})
		}
		t := &totals[at]
		t.files++
		t.all.Gather(d)
		if l := worst(d.First); l != nil && (t.shown == nil || t.shown.Class == lists.Unsupported && l.Class != lists.Unsupported) {
			t.file, t.shown = row.Source.Path, l
		}
	}
	var remarks []string
	for _, t := range totals {
		what := "1 line is"
		switch n := t.all.Total(); {
		case t.files > 1:
			what = fmt.Sprintf("%d lines of %d files are", n, t.files)
		case n > 1:
			what = fmt.Sprintf("%d lines are", n)
		}
		text := fmt.Sprintf("list %s: %s refused (%s)", t.list, what, &t.all)
		if l := t.shown; l != nil {
			text += fmt.Sprintf(", such as %s:%d: %s: %s", t.file, l.Line, l.Class, l.Message)
		}
		remarks = append(remarks, text)
	}
	return remarks
}

// worst returns the line to show for all: the first that is not merely Unsupported, or the
// first.
func worst(all []lists.DroppedLine) *lists.DroppedLine {
	if len(all) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(all, func(l lists.DroppedLine) bool { return l.Class != lists.Unsupported }))
	return &all[i]
}
