package testkit

import (
	"cmp"
	"testing"
)

// AtLeast reports a value that is less than it should be.
func AtLeast[T cmp.Ordered](t testing.TB, what any, got, least T) {
	if got < least {
		t.Helper()
		t.Errorf("%v: %v, want at least %v", what, got, least)
	}
}

// AtMost reports a value that is more than it should be.
func AtMost[T cmp.Ordered](t testing.TB, what any, got, most T) {
	if got > most {
		t.Helper()
		t.Errorf("%v: %v, want at most %v", what, got, most)
	}
}
