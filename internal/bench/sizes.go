package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/FastFilter/xorfilter"

	"blockd/bloom"
	foreign "blockd/bloom/filter"
)

// newSizesCommand is `bench sizes`: the plot of a filter's size against its rate of false positives
// in docs/filters.md. Lines are the formulas, points are counted in filters that are built for it. Its numbers
// are the same on every machine.
func newSizesCommand() *command {
	s := &scale{}
	c := newCommand("bench sizes", s)
	c.flags.IntVar(&s.n, "n", 1_000_000, "`keys` of each filter, which is asked for four times as many others")
	c.within = func() bool { return s.n >= 1000 }
	c.bounds = "-n of 1,000 or more"
	c.measure = func(ctx context.Context, stdout, _ io.Writer) error {
		curves, err := sizeCurves(ctx, uint64(s.n))
		if err != nil {
			return err
		}
		for _, curve := range curves {
			for _, p := range curve.counted {
				fmt.Fprintf(stdout, "%-12s %5.2f bits a key, rate %.3g, by the formula %.3g\n", curve.name, p.bits, p.rate, curve.rate(p.bits))
			}
		}
		return os.WriteFile(filepath.Join(s.docs, "filter-size.svg"), drawSizes(curves, uint64(s.n)), 0o644)
	}
	return c
}

// sizePoint is a filter: its bits for each key, and its rate of false positives.
type sizePoint struct{ bits, rate float64 }

// sizeCurve is a kind of filter.
type sizeCurve struct {
	name, class string
	rate        func(bits float64) float64 // by the formula
	counted     []sizePoint
}

// absentOf is how many absent keys a filter is asked for, times its keys.
const absentOf = 4

// leastFalse is how many false positives a counted rate has at least.
const leastFalse = 20

// sizeCurves counts the rates of filters for n keys.
func sizeCurves(ctx context.Context, n uint64) ([]sizeCurve, error) {
	overhead := float64(foreign.Fuse8Bits(n)) / 8 / float64(n)
	classic := sizeCurve{name: "classic", class: "a", rate: func(bits float64) float64 {
		return foreign.ClassicRate(n, uint64(bits*float64(n)), max(1, int(math.Round(bits*math.Ln2))))
	}}
	split := sizeCurve{name: "split block", class: "b", rate: func(bits float64) float64 {
		return bloom.FalsePositiveRate(n, bloom.Blocks(n, bits))
	}}
	fuse := sizeCurve{name: "binary fuse", class: "c", rate: func(bits float64) float64 { return math.Exp2(-bits / overhead) }}
	for bits := 2.0; bits <= 24; bits += 2 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := foreign.New("bits", n, math.Exp(-bits*math.Ln2*math.Ln2))
		if err != nil {
			return nil, err
		}
		for i := range n {
			f.Add(sizeKey(i))
		}
		classic.count(bits, n, func(i uint64) bool { return f.Has(sizeKey(i)) })
		b := bloom.NewBuilder(n, bits)
		for i := range n {
			b.Add(bloom.Seed{}.Sum(sizeKey(i)))
		}
		built := b.Filter()
		split.count(float64(built.Blocks()*bloom.BlockBits)/float64(n), n, func(i uint64) bool { return built.Has(bloom.Seed{}.Sum(sizeKey(i))) })
	}
	if err := errorOf(countFuse[uint8](&fuse, n, 8), countFuse[uint16](&fuse, n, 16)); err != nil {
		return nil, err
	}
	return []sizeCurve{classic, split, fuse}, nil
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// countFuse counts in a binary fuse filter of so many bits.
func countFuse[T xorfilter.Unsigned](c *sizeCurve, n uint64, bits int) error {
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = bloom.Seed{}.Sum(sizeKey(uint64(i))).Lo
	}
	f, err := xorfilter.NewBinaryFuse[T](keys)
	if err != nil {
		return err
	}
	size := float64(len(f.Fingerprints)*bits) / float64(n)
	c.count(size, n, func(i uint64) bool { return f.Contains(bloom.Seed{}.Sum(sizeKey(i)).Lo) })
	return nil
}

// sizeKey is a key; those below n are in a filter.
func sizeKey(i uint64) []byte { return binary.LittleEndian.AppendUint64(nil, i*0x9e3779b97f4a7c15) }

// count asks for absent keys. A rate of few false positives is no point.
func (c *sizeCurve) count(bits float64, n uint64, has func(i uint64) bool) {
	wrong := 0
	for i := n; i < (1+absentOf)*n; i++ {
		if has(i) {
			wrong++
		}
	}
	if wrong >= leastFalse {
		c.counted = append(c.counted, sizePoint{bits, float64(wrong) / float64(absentOf*n)})
	}
}

// The measures of the drawing, in SVG units.
const (
	sizesHeight = 470
	sizesLeft   = 78
	sizesTop    = 74
	sizesRight  = 120
	sizesBottom = 50
	mostBits    = 30
	leastRate   = -6 // power of ten
)

func sizeX(bits float64) float64 {
	return sizesLeft + (bits-1)/(mostBits-1)*(plotWidth-sizesLeft-sizesRight)
}

func sizeY(rate float64) float64 {
	return sizesTop + math.Log10(rate)/leastRate*(sizesHeight-sizesTop-sizesBottom)
}

// drawSizes draws rates on a logarithmic axis over bits a key. It has colours for light and for
// dark pages.
func drawSizes(curves []sizeCurve, n uint64) []byte {
	const title = "How large a filter is, and how often it is wrong"
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="13">
<title>%s</title>
<style>
.paper { fill: #fff } .grid { stroke: #d8dee4 } text { fill: #1f2328 } .faint { fill: #59636e; font-size: 12px } .head { font-size: 17px; font-weight: 600 }
path.a, path.b, path.c { fill: none; stroke-width: 2 } .a { stroke: #0b62c4 } .b { stroke: #b35900 } .c { stroke: #1a7f37 }
circle.a, text.a { fill: #0b62c4; stroke: none } circle.b, text.b { fill: #b35900; stroke: none } circle.c, text.c { fill: #1a7f37; stroke: none }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 } .grid { stroke: #30363d } text { fill: #e6edf3 } .faint { fill: #9198a1 }
.a { stroke: #58a6ff } .b { stroke: #f0883e } .c { stroke: #56d364 } circle.a, text.a { fill: #58a6ff; stroke: none } circle.b, text.b { fill: #f0883e; stroke: none } circle.c, text.c { fill: #56d364; stroke: none }
}
</style>
<rect class="paper" width="%[1]d" height="%[2]d"/>
`, plotWidth, sizesHeight, title)
	fmt.Fprintf(&b, "<text class=\"head\" x=\"%d\" y=\"30\">%s</text>\n", plotMargin, title)
	fmt.Fprintf(&b, "<text class=\"faint\" x=\"%d\" y=\"49\">Lines: the formulas. Points: counted in filters of %s keys, asked for %s others. Logarithmic upwards.</text>\n",
		plotMargin, grouped(int(n)), grouped(int(absentOf*n)))
	for e := 0; e >= leastRate; e-- {
		y := sizeY(math.Pow10(e))
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"faint\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s %%</text>\n",
			sizesLeft, y, plotWidth-sizesRight, sizesLeft-8, y+4, shortRate(e))
	}
	for _, bits := range []int{1, 5, 10, 15, 20, 25, 30} {
		x := sizeX(float64(bits))
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"faint\" x=\"%.1[1]f\" y=\"%[4]d\" text-anchor=\"middle\">%[5]d</text>\n",
			x, sizesTop, sizesHeight-sizesBottom, sizesHeight-sizesBottom+18, bits)
	}
	fmt.Fprintf(&b, "<text class=\"faint\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">bits a key</text>\n", (sizesLeft+plotWidth-sizesRight)/2, sizesHeight-12)
	for _, c := range curves {
		c.draw(&b)
	}
	return []byte(b.String() + "</svg>\n")
}

// draw draws the line as far as the axes go, its name at its end, and the points.
func (c *sizeCurve) draw(b *strings.Builder) {
	var last sizePoint
	fmt.Fprintf(b, `<path class="%s" d="`, c.class)
	for bits := 1.0; bits <= mostBits; bits += 0.25 {
		rate := c.rate(bits)
		if rate < math.Pow10(leastRate) {
			break
		}
		fmt.Fprintf(b, "%c%.1f %.1f", "ML"[min(int(last.bits), 1)], sizeX(bits), sizeY(rate))
		last = sizePoint{bits, rate}
	}
	fmt.Fprintf(b, "\"/>\n<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", c.class+" name", sizeX(last.bits)+8, sizeY(last.rate)-6, html.EscapeString(c.name))
	for _, p := range c.counted {
		fmt.Fprintf(b, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", c.class, sizeX(p.bits), sizeY(p.rate))
	}
}

// shortRate is a power of ten in per cent.
func shortRate(e int) string { return fmt.Sprintf("%g", math.Round(math.Pow10(e+2)*1e4)/1e4) }
