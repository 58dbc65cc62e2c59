package main

import (
	"math"
	"slices"
	"strconv"
)

// series are the rounds of one figure, in the order in which they ran.
type series []float64

// median is the middle round, or the mean of the two in the middle.
func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// ratio is the median of s over base, round by round: the two of a round ran
// next to each other, under the same load. Where one has fewer rounds, it is
// the ratio of their medians.
func (s series) ratio(base series) float64 {
	if len(s) != len(base) {
		return s.median() / base.median()
	}
	ratios := make(series, len(s))
	for i := range s {
		ratios[i] = s[i] / base[i]
	}
	return ratios.median()
}

// quantile is the smallest value that q of all do not exceed.
func (s series) quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
}

// difference is the median of s - base, round by round.
func (s series) difference(base series) float64 {
	d := make(series, min(len(s), len(base)))
	for i := range d {
		d[i] = s[i] - base[i]
	}
	return d.median()
}

// spread is the largest round over the smallest: how restless the machine was.
func (s series) spread() float64 { return slices.Max(s) / slices.Min(s) }

// grouped writes 1000000 as 1,000,000.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
