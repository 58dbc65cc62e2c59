//go:build race

package server

// raceDetector makes memory figures meaningless.
const raceDetector = true
