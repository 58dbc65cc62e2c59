package testkit

import (
	"errors"
	"slices"
	"testing"
)

// Fails reports a call that gives a value and has not failed with an error: Fails(Open(s))(t, "a second process", ErrLocked).
func Fails[T any](_ T, err error) func(t testing.TB, what any, want error) {
	return func(t testing.TB, what any, want error) {
		t.Helper()
		IsError(t, what, err, want)
	}
}

// IsError reports an error that is another one than it should be.
func IsError(t testing.TB, what any, err, want error) {
	if !errors.Is(err, want) {
		t.Helper()
		t.Errorf("%v: %v, want %v", what, err, want)
	}
}

// Should reports an error, and the test goes on. Any goroutine may call it.
func Should(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Error(err)
	}
}

// Equal reports a value that is another one than it should be.
func Equal[T comparable](t testing.TB, what any, got, want T) {
	if got != want {
		t.Helper()
		form := "%v: %v, want %v"
		if _, text := any(got).(string); text {
			form = "%v: %q, want %q"
		}
		t.Errorf(form, what, got, want)
	}
}

// MustEqual ends a test whose value is another one than it should be.
func MustEqual[T comparable](t testing.TB, what any, got, want T) {
	t.Helper()
	if Equal(t, what, got, want); got != want {
		t.FailNow()
	}
}

// EqualSlices reports a slice that is another one than it should be.
func EqualSlices[T comparable](t testing.TB, what any, got, want []T) {
	if !slices.Equal(got, want) {
		t.Helper()
		t.Errorf("%v: %+v, want %+v", what, got, want)
	}
}
