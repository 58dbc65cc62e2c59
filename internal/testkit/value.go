package testkit

import "testing"

// Value is what a call has given that must not fail: testkit.Value(os.Open(name))(t).
func Value[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
