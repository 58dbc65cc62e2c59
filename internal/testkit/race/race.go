// Package race tells tests whether they run under the race detector.
//
// It makes a test ten times slower, and finds nothing in one that computes in a single goroutine. Such a test calls Skip if it
// takes long; one that repeats what it does with several asks Enabled, and repeats it less often. Without the detector is the
// rule, in which make test runs all cases; make check runs under it what starts goroutines (packages.sh finds that).
package race

import "testing"

// Skip ends a test that is too long for the race detector and has no races to find.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("runs without the race detector: make test, or go test without -race")
	}
}
