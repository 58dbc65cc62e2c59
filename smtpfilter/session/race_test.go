//go:build race

package session

// raceDetector makes memory figures meaningless.
const raceDetector = true
