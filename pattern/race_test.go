//go:build race

package pattern

// raceDetector makes everything ten times slower, and pools forget what they hold.
const raceDetector = true
