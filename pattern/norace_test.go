//go:build !race

package pattern

const raceDetector = false
