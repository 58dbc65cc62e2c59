package testkit

import (
	"reflect"
	"testing"
)

// EqualDeep reports a value that is not deeply equal to what it should be, by reflect.DeepEqual.
func EqualDeep(t testing.TB, what, got, want any) {
	if !reflect.DeepEqual(got, want) {
		t.Helper()
		t.Errorf("%v: %+v, want %+v", what, got, want)
	}
}
