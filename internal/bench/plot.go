package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The plot's measures, in SVG units.
const (
	plotWidth  = 820
	plotMargin = 24
	barsLeft   = 270 // names end before, bars begin here
	barsWidth  = 400 // of the axis; the figures stand behind the bars
	barHeight  = 18
	rowHeight  = 25
	titleSpace = 28 // of a panel: its title
	axisSpace  = 42 // and its axis
	headSpace  = 62 // of the plot
)

// panel is one figure of one table.
type panel struct {
	table  *table
	column int
	title  string
	unit   string
	print  func(float64) string
}

// plot draws the figures that decide, each on a logarithmic axis.
func plot(r *report) []byte {
	panels := []panel{
		{&r.filters, filtersAbsent, "Filter: key that is not listed", "ns a key, one thread, less is better", significant},
		{&r.stores, storesListed, "Exact look-up: key that is listed", "ns a key, one thread, less is better", significant},
		{&r.compile, compileSeconds, "Compiling all keys from text", "seconds, less is better", printSeconds},
		{&r.programs, programsAbsent, "Program that reads senders, none listed", "senders a second, more is better", printMillions},
	}
	return drawing(fmt.Sprintf("blockd and its peers, %s keys", grouped(r.n)),
		r.machine.String()+". Medians; × is how many times blockd is better; logarithmic axes.", panels)
}

// drawing is an SVG of panels, one below the other.
func drawing(title, note string, panels []panel) []byte {
	var body strings.Builder
	y := headSpace
	for _, p := range panels {
		y += p.draw(&body, y)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="13">
<title>%s</title>
<style>
.paper { fill: #fff } .grid { stroke: #d8dee4 } .own { fill: #0b62c4 } .peer { fill: #a9b4c0 }
text { fill: #1f2328 } .figure { paint-order: stroke; stroke: #fff; stroke-width: 4px } .faint { fill: #59636e; font-size: 12px } .head { font-size: 17px; font-weight: 600 } .title { font-size: 14px; font-weight: 600 }
</style>
<rect class="paper" width="%[1]d" height="%[2]d"/>
`, plotWidth, y, html.EscapeString(title))
	fmt.Fprintf(&b, "<text class=\"head\" x=\"%d\" y=\"30\">%s</text>\n", plotMargin, html.EscapeString(title))
	fmt.Fprintf(&b, "<text class=\"faint\" x=\"%d\" y=\"49\">%s</text>\n", plotMargin, html.EscapeString(note))
	return []byte(b.String() + body.String() + "</svg>\n")
}

// draw draws the panel from y on and returns its height; nothing and 0 when
// there is no figure.
func (p panel) draw(b *strings.Builder, y int) int {
	var rows []*row
	var values series
	for _, r := range p.table.rows {
		if rounds := r.cells[p.column]; len(rounds) > 0 {
			rows, values = append(rows, r), append(values, rounds.median())
		}
	}
	if len(rows) == 0 {
		return 0
	}
	axis := decades(slices.Min(values), slices.Max(values))
	fmt.Fprintf(b, "<text class=\"title\" x=\"%d\" y=\"%d\">%s</text><text class=\"faint\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
		plotMargin, y+18, html.EscapeString(p.title), plotWidth-plotMargin, y+18, html.EscapeString(p.unit))
	top := y + titleSpace
	bottom := top + rowHeight*len(rows)
	for _, tick := range axis.ticks() {
		x := barsLeft + axis.place(tick)
		fmt.Fprintf(b, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"faint\" x=\"%.1[1]f\" y=\"%[4]d\" text-anchor=\"middle\">%[5]s</text>\n",
			x, top, bottom, bottom+16, shortNumber(tick))
	}
	for i, r := range rows {
		middle, class := top+rowHeight*i+rowHeight/2, "peer"
		if strings.Contains(r.name, "blockd") {
			class = "own"
		}
		label := p.print(values[i])
		if times, compared := p.table.advantage(r, p.column); compared {
			label += "  (" + printTimes(times) + ")"
		}
		width := axis.place(values[i])
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", barsLeft-10, middle+5, html.EscapeString(plain(r.name)))
		fmt.Fprintf(b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>", class, barsLeft, middle-barHeight/2, width, barHeight)
		fmt.Fprintf(b, "<text class=\"figure\" x=\"%.1f\" y=\"%d\">%s</text>\n", barsLeft+width+7, middle+5, html.EscapeString(label))
	}
	return titleSpace + rowHeight*len(rows) + axisSpace
}

// plain is a name without Markdown.
func plain(name string) string { return strings.NewReplacer("*", "", "`", "").Replace(name) }

// logAxis runs from one power of ten to another.
type logAxis struct{ from, to int }

// decades is the axis of values between low and high. It begins well below low:
// the smallest bar must be seen to be one.
func decades(low, high float64) logAxis {
	a := logAxis{int(math.Floor(math.Log10(low / 2))), int(math.Ceil(math.Log10(high)))}
	a.to = max(a.to, a.from+1)
	return a
}

// place is how far from the axis' beginning a value lies.
func (a logAxis) place(value float64) float64 {
	return barsWidth * (math.Log10(value) - float64(a.from)) / float64(a.to-a.from)
}

func (a logAxis) ticks() (ticks []float64) {
	for e := a.from; e <= a.to; e++ {
		ticks = append(ticks, math.Pow10(e))
	}
	return ticks
}

// shortNumber writes a power of ten on an axis.
func shortNumber(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.0f M", x/1e6)
	case x >= 1e3:
		return fmt.Sprintf("%.0f k", x/1e3)
	}
	return fmt.Sprintf("%g", x)
}
