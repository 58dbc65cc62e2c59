//go:build race

package index

// raceDetector makes everything ten times slower; the longest tests do less.
const raceDetector = true
