//go:build race

package bloom

// raceDetector makes everything ten times slower; the longest tests do less.
const raceDetector = true
