package testkit

import (
	"testing"
	"time"
)

// Eventually waits until cond holds. The test fails if it does not within two minutes, which
// a loaded machine does not need.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	Within(t, what, 2*time.Minute, cond)
}

// Within waits until cond holds. The test fails if it does not within limit.
func Within(t testing.TB, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}
