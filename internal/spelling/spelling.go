// Package spelling finds the word that a person most likely meant.
package spelling

// Nearest returns the candidate that have most likely was meant to be, "" if
// none is near: two letters apart, or one for a word of up to four.
func Nearest(have string, candidates []string) string {
	best, least := "", 3
	if len(have) <= 4 {
		least = 2
	}
	for _, c := range candidates {
		if d := Distance(have, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// Distance counts the letters to insert, drop, change or swap with their
// neighbour between a and b (optimal string alignment). Keys are short; texts
// over 64 octets are never near.
func Distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	var before, above [65]int
	var row [65]int
	for j := range len(b) + 1 {
		above[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(above[j]+change, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}

// Hint asks ", did you mean NAME?" with the nearest of names behind prefix; "" if none is near.
func Hint(have, prefix string, names []string) string {
	if near := Nearest(have, names); near != "" {
		return ", did you mean " + prefix + near + "?"
	}
	return ""
}
