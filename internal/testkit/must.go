package testkit

import "testing"

// Must ends the test if something that it stands on has failed.
func Must(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
