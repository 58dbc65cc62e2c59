package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// column is one figure of a table.
type column struct {
	head  string
	print func(float64) string
	// better says which way is better; neither for a figure that is not compared.
	better direction
}

type direction int8

const (
	neither direction = iota
	lower
	higher
)

// row is one contestant, with the rounds of its figures by column.
type row struct {
	name  string
	cells []series
	why   string // of a contestant without figures
}

// table compares contestants. Its first row with figures is blockd's, the
// reference of the ratios.
type table struct {
	title   string
	note    string
	columns []column
	rows    []*row
}

// add adds one round of a figure. Rows stand in the order of their first round.
func (t *table) add(name string, column int, value float64) {
	r := t.row(name)
	r.cells[column] = append(r.cells[column], value)
}

// missing says why a contestant has no figures.
func (t *table) missing(name, why string) { t.row(name).why = why }

func (t *table) row(name string) *row {
	for _, r := range t.rows {
		if r.name == name {
			return r
		}
	}
	r := &row{name: name, cells: make([]series, len(t.columns))}
	t.rows = append(t.rows, r)
	return r
}

// cells are the rounds of a figure; none where it was not measured.
func (t *table) cells(name string, column int) series {
	for _, r := range t.rows {
		if r.name == name {
			return r.cells[column]
		}
	}
	return nil
}

// forget drops all rounds so far, and keeps the rows with their order.
func (t *table) forget() {
	for _, r := range t.rows {
		clear(r.cells)
	}
}

// advantage is how many times better blockd is than r in a column: below 1 it is
// worse. ok is false for blockd's own row and where nothing is compared.
func (t *table) advantage(r *row, column int) (times float64, ok bool) {
	reference := t.rows[slices.IndexFunc(t.rows, func(r *row) bool { return r.why == "" })]
	own, base := r.cells[column], reference.cells[column]
	if r == reference || len(own) == 0 || len(base) == 0 {
		return 0, false
	}
	switch t.columns[column].better {
	case lower:
		return own.ratio(base), true
	case higher:
		return base.ratio(own), true
	}
	return 0, false
}

func (t *table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s.** %s\n\n| |", t.title, t.note)
	for _, c := range t.columns {
		fmt.Fprintf(&b, " %s |", c.head)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(t.columns)) + "\n")
	for _, r := range t.rows {
		if r.why == "" {
			fmt.Fprintf(&b, "| %s |%s\n", r.name, t.cellsOf(r))
		}
	}
	for _, r := range t.rows {
		if r.why != "" {
			fmt.Fprintf(&b, "\nNot measured: %s (%s).", r.name, r.why)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", t.roundsNote())
	return b.String()
}

func (t *table) cellsOf(r *row) string {
	var b strings.Builder
	for i, c := range t.columns {
		switch times, compared := t.advantage(r, i); {
		case len(r.cells[i]) == 0:
			b.WriteString(" - |")
		case compared:
			fmt.Fprintf(&b, " %s (%s) |", c.print(r.cells[i].median()), printTimes(times))
		default:
			fmt.Fprintf(&b, " %s |", c.print(r.cells[i].median()))
		}
	}
	return b.String()
}

// roundsNote says how many rounds there were and how much they differed.
func (t *table) roundsNote() string {
	var spreads, most series
	var once []string
	for _, r := range t.rows {
		rounds := 0
		for _, s := range r.cells {
			if rounds = max(rounds, len(s)); len(s) > 1 && slices.Min(s) > 0 { // nothing lost is 0 in each round
				spreads = append(spreads, s.spread())
			}
		}
		most = append(most, float64(rounds))
		if rounds == 1 {
			once = append(once, r.name)
		}
	}
	if len(spreads) == 0 {
		return "One round."
	}
	note := fmt.Sprintf("Rounds: %.0f. Slowest to fastest round of a figure: %.2f in the middle, %.1f at most.",
		slices.Max(most), spreads.median(), slices.Max(spreads))
	if len(once) > 0 {
		note += " One round only: " + strings.Join(once, "; ") + "."
	}
	return note
}

func printTimes(x float64) string { return significant(x) + "×" }

// significant prints two digits that matter, and all digits before the point.
func significant(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x >= 9.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 0.0995:
		return fmt.Sprintf("%.2g", x)
	}
	return fmt.Sprintf("%.1g", x)
}

// The columns' ways to print.
func printMillions(x float64) string { return fmt.Sprintf("%.2f M", x/1e6) }
func printPercent(x float64) string  { return fmt.Sprintf("%.2f %%", x) }
func printSeconds(x float64) string {
	if x >= 10 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
func printWhole(x float64) string { return grouped(int(math.Round(x))) }
