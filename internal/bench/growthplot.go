package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The measures of the drawing, in SVG units. Charts stand in two columns.
const (
	chartWidth  = 400
	chartHeight = 250
	chartLeft   = 52
	chartRight  = 92 // for the names at the ends of curves
	chartTop    = 30
	chartBottom = 36
	growthHead  = 78
)

// curve is what one column of a table does along its rows.
type curve struct {
	name   string
	column int
	class  string                     // its colour
	each   func(x, y float64) float64 // what is drawn of a figure; nil = the figure
	dashed bool                       // on one processor
	points []struct{ x, y float64 }   // in the order of x
}

// chart is a set of curves on logarithmic axes.
type chart struct {
	title, unit, along string
	table              *table
	curves             []curve
}

// plot draws the figures over entries and connections.
func (g *growth) plot(on machine) []byte {
	pair := func(name, class string, column, columns int, each func(x, y float64) float64) []curve {
		return []curve{{name: name + ", 1", class: class, column: column, each: each, dashed: true}, {name: name + ", 2", class: class, column: columns + column, each: each}}
	}
	million := func(x, y float64) float64 { return y / x * 1e6 }
	charts := []chart{
		{"Look-up in this process", "ns an address", "entries", &g.entries.lookups, slices.Concat(pair("clear", "a", 0, 2, nil), pair("listed", "b", 1, 2, nil))},
		{"Compiling", "seconds a million entries", "entries", &g.entries.compile, pair("wall", "a", growCompileSeconds, growCompileColumns, million)},
		{"Checks a second by HTTP", "16 connections", "entries", &g.entries.daemon, slices.Concat(pair("clear", "a", growDaemonClear, growDaemonColumns, nil), pair("listed", "b", growDaemonListed, growDaemonColumns, nil))},
		{"Start to the first answer", "ms", "entries", &g.entries.daemon, pair("start", "c", growDaemonStart, growDaemonColumns, nil)},
		{"Answers a second", "each connection waits for its own", "connections", &g.crowd, slices.Concat(pair("HTTP", "a", growCrowdHTTP, growCrowdColumns, nil), pair("mails", "b", growCrowdMails, growCrowdColumns, nil),
			[]curve{{name: "sink alone", class: "c", column: growCrowdSink}})},
		{"p99 of one", "ms", "connections", &g.crowd, slices.Concat(pair("HTTP", "a", growCrowdHTTPTail, growCrowdColumns, nil), pair("mail", "b", growCrowdMailTail, growCrowdColumns, nil))},
		{"Memory of the daemon", "MB, its own", "entries", &g.entries.daemon, pair("daemon", "c", growDaemonOwn, growDaemonColumns, nil)},
		{"Memory of the daemon", "MB, its own", "connections", &g.crowd, pair("daemon", "c", growCrowdOwn, growCrowdColumns, nil)},
	}
	const title = "blockd as lists and connections grow"
	rows := (len(charts) + 1) / 2
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12">
<title>%s</title>
<style>
.paper { fill: #fff } .grid { stroke: #d8dee4 } text { fill: #1f2328 } .faint { fill: #59636e; font-size: 11px } .head { font-size: 17px; font-weight: 600 } .title { font-size: 13px; font-weight: 600 }
path.a, path.b, path.c { fill: none; stroke-width: 2 } .a { stroke: #0b62c4 } .b { stroke: #b35900 } .c { stroke: #1a7f37 } .one { stroke-dasharray: 5 3 }
circle.a, text.a { fill: #0b62c4; stroke: none } circle.b, text.b { fill: #b35900; stroke: none } circle.c, text.c { fill: #1a7f37; stroke: none }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 } .grid { stroke: #30363d } text { fill: #e6edf3 } .faint { fill: #9198a1 }
.a { stroke: #58a6ff } .b { stroke: #f0883e } .c { stroke: #56d364 } circle.a, text.a { fill: #58a6ff; stroke: none } circle.b, text.b { fill: #f0883e; stroke: none } circle.c, text.c { fill: #56d364; stroke: none }
}
</style>
<rect class="paper" width="%[1]d" height="%[2]d"/>
`, plotWidth, growthHead+rows*chartHeight, title)
	fmt.Fprintf(&b, "<text class=\"head\" x=\"%d\" y=\"30\">%s</text>\n", plotMargin, title)
	fmt.Fprintf(&b, "<text class=\"faint\" x=\"%d\" y=\"49\">%s</text>\n", plotMargin, html.EscapeString(on.String()))
	fmt.Fprintf(&b, "<text class=\"faint\" x=\"%d\" y=\"65\">Medians; logarithmic axes. Dashed: the daemon has one processor. Whole: it has two, and shares them with the client.</text>\n", plotMargin)
	for i, c := range charts {
		c.draw(&b, plotMargin/2+i%2*(plotWidth-plotMargin)/2, growthHead+i/2*chartHeight)
	}
	return []byte(b.String() + "</svg>\n")
}

// draw draws the chart into the rectangle whose corner is at x, y.
func (c chart) draw(b *strings.Builder, x, y int) {
	var xs, ys []float64
	for i := range c.curves {
		curve := &c.curves[i]
		for _, r := range c.table.rows {
			if cells := r.cells[curve.column]; len(cells) > 0 {
				at, value := rowNumber(r.name), cells.median()
				if curve.each != nil {
					value = curve.each(at, value)
				}
				if value <= 0 {
					continue
				}
				curve.points = append(curve.points, struct{ x, y float64 }{at, value})
				xs, ys = append(xs, at), append(ys, value)
			}
		}
	}
	if len(xs) == 0 {
		return
	}
	wide, high := spanning(xs), spanning(ys)
	left, right, top, bottom := x+chartLeft, x+chartWidth-chartRight, y+chartTop, y+chartHeight-chartBottom
	placeX := func(v float64) float64 { return float64(left) + wide.share(v)*float64(right-left) }
	placeY := func(v float64) float64 { return float64(bottom) - high.share(v)*float64(bottom-top) }
	fmt.Fprintf(b, "<text class=\"title\" x=\"%d\" y=\"%d\">%s <tspan class=\"faint\" font-weight=\"400\">%s</tspan></text>\n", x+8, y+16, html.EscapeString(c.title), html.EscapeString(c.unit))
	for _, tick := range high.ticks() {
		fmt.Fprintf(b, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"faint\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			left, placeY(tick), right, left-6, placeY(tick)+4, shortNumber(tick))
	}
	for _, tick := range wide.ticks() {
		fmt.Fprintf(b, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"faint\" x=\"%.1[1]f\" y=\"%[4]d\" text-anchor=\"middle\">%[5]s</text>\n",
			placeX(tick), top, bottom, bottom+15, shortNumber(tick))
	}
	fmt.Fprintf(b, "<text class=\"faint\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", (left+right)/2, bottom+30, c.along)

	// Names stand at the ends of their curves, and not on each other.
	named := slices.Clone(c.curves)
	named = slices.DeleteFunc(named, func(c curve) bool { return len(c.points) == 0 })
	slices.SortFunc(named, func(a, b curve) int { return cmp.Compare(placeY(a.last()), placeY(b.last())) })
	below := math.Inf(-1)
	for _, curve := range named {
		line, class := "", curve.class
		if curve.dashed {
			class += " one"
		}
		for i, p := range curve.points {
			line += fmt.Sprintf("%c%.1f %.1f", "ML"[min(i, 1)], placeX(p.x), placeY(p.y))
			fmt.Fprintf(b, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", curve.class, placeX(p.x), placeY(p.y))
		}
		below = max(placeY(curve.last())+4, below+13)
		fmt.Fprintf(b, "<path class=\"%s\" d=\"%s\"/><text class=\"%s\" x=\"%d\" y=\"%.1f\">%s</text>\n", class, line, curve.class, right+8, below, html.EscapeString(curve.name))
	}
}

func (c curve) last() float64 { return c.points[len(c.points)-1].y }

// spanning is the axis of values; a power of ten lies at each end.
func spanning(values []float64) logAxis {
	a := logAxis{int(math.Floor(math.Log10(slices.Min(values)) + 1e-9)), int(math.Ceil(math.Log10(slices.Max(values)) - 1e-9))}
	a.to = max(a.to, a.from+1)
	return a
}

// share is how far along the axis a value lies, from 0 to 1.
func (a logAxis) share(value float64) float64 {
	return (math.Log10(value) - float64(a.from)) / float64(a.to-a.from)
}

// rowNumber is the number that a row's name begins with.
func rowNumber(name string) float64 {
	n := 0.0
	for _, r := range name {
		if r >= '0' && r <= '9' {
			n = 10*n + float64(r-'0')
		} else if r != ',' {
			break
		}
	}
	return n
}
