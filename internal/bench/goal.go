package main

import (
	"fmt"
	"slices"
	"strings"
)

// goal is one line of the table that decides.
type goal struct {
	what, want string
	measured   string // "" = a peer is missing
	met        bool
}

// versus is a goal of blockd's figure over a peer's: at least want where more is
// better, at most where less is.
func (t *table) versus(what string, column int, peer, short string, want float64) goal {
	g := goal{what: what}
	better, sign := t.columns[column].better, "≥"
	if better == lower {
		sign = "≤"
	}
	g.want = fmt.Sprintf("%s %g× %s", sign, want, short) // all digits: 1.15 is no 1.1
	own, base := t.cells(nameBlockd, column), t.cells(peer, column)
	if len(own) == 0 || len(base) == 0 {
		return g
	}
	ratio := own.ratio(base)
	g.measured = fmt.Sprintf("%.2f×", ratio)
	g.met = ratio >= want && better == higher || ratio <= want && better == lower
	return g
}

// atMost is a goal of a figure as it is.
func atMost(what string, want float64, unit string, measured float64, ok bool) goal {
	g := goal{what: what, want: fmt.Sprintf("≤ %s %s", significant(want), unit)}
	if ok {
		g.measured, g.met = fmt.Sprintf("%s %s", significant(measured), unit), measured <= want
	}
	return g
}

// atLeast is a goal of a figure as it is.
func atLeast(what string, want float64, unit string, cells series) goal {
	g := goal{what: what, want: fmt.Sprintf("≥ %s %s", printWhole(want), unit)}
	if len(cells) > 0 {
		g.measured, g.met = fmt.Sprintf("%s %s", printWhole(cells.median()), unit), cells.median() >= want
	}
	return g
}

// idleMemory is the goal of a connection that waits, in KiB; each round counts.
func idleMemory(what string, held int, want float64, cells series) goal {
	g := atMost(fmt.Sprintf("memory of an idle %s, %s held", what, grouped(held)), want, "KiB", 0, false)
	if len(cells) > 0 {
		g = atMost(g.what, want, "KiB", slices.Max(cells), true)
	}
	return g
}

// goalsMarkdown is the table of goals.
func goalsMarkdown(goals []goal) string {
	var b strings.Builder
	b.WriteString("**Goals.**\n\n| | goal | measured | |\n| --- | --- | ---: | --- |\n")
	for _, g := range goals {
		verdict := "met"
		switch {
		case g.measured == "":
			g.measured, verdict = "-", "not measured"
		case !g.met:
			verdict = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", g.what, g.want, g.measured, verdict)
	}
	return b.String()
}
