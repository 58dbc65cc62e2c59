package testkit

import (
	"strings"
	"testing"
)

// Begins reports a text that begins with something else than it should.
func Begins(t testing.TB, what any, text, want string) {
	if !strings.HasPrefix(text, want) {
		t.Helper()
		t.Errorf("%v: %q, want %q", what, text, want)
	}
}
