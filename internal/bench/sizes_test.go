package main

import (
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// TestSizes holds that what is counted agrees with the formulas, and that the plot is XML.
func TestSizes(t *testing.T) {
	const n = 20_000
	curves, err := sizeCurves(t.Context(), n)
	testkit.Must(t, err)
	for _, c := range curves {
		if len(c.counted) == 0 {
			t.Errorf("%s has no point", c.name)
		}
		for _, p := range c.counted {
			// 20 false positives are 20 ± 4.5; the keys are always the same.
			if want := c.rate(p.bits); p.rate < want/2 || p.rate > want*2 {
				t.Errorf("%s, %.2f bits a key: rate %g, by the formula %g", c.name, p.bits, p.rate, want)
			}
		}
	}
	plot := drawSizes(curves, n)
	if strings.Contains(string(plot), "%!") || strings.Contains(string(plot), "NaN") {
		t.Errorf("a number was printed with the wrong verb:\n%s", plot)
	}
	isXML(t, plot)
}
