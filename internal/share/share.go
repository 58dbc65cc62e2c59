// Package share divides room that is short: whoever has little keeps all of it, and the others have as much as each
// other.
package share

import "iter"

// Level is the highest level at which all together have no more than most, each counted up to that level; 0 if most is
// below 0.
func Level(have iter.Seq[int64], most int64) int64 {
	low, high := int64(0), max(most, 0) // low is low enough
	for low < high {
		level, sum := (low+high+1)/2, int64(0)
		for n := range have {
			sum += min(n, level)
		}
		if sum <= most {
			low = level
		} else {
			high = level - 1
		}
	}
	return low
}
