package testkit

import (
	"fmt"
	"strings"
	"testing"
)

// Any stands in a wanted text for whatever text there is, also none.
const Any = "…"

// Got compares values, or all that a call has given, with what each of them should be, as both are printed:
// Got(get("/readyz"))(t, "not ready", 503, "not ready\n…").
func Got(got ...any) func(t testing.TB, what any, want ...any) {
	return func(t testing.TB, what any, want ...any) {
		if !alike(got, want) {
			t.Helper()
			t.Errorf("%v:\n%s\nwant:\n%s", what, lines(got), lines(want))
		}
	}
}

// MustGot is Got, and ends a test whose values are others.
func MustGot(got ...any) func(t testing.TB, what any, want ...any) {
	return func(t testing.TB, what any, want ...any) {
		t.Helper()
		if Got(got...)(t, what, want...); !alike(got, want) {
			t.FailNow()
		}
	}
}

// alike reports whether each of the values is what it should be.
func alike(got, want []any) bool {
	for i := range min(len(got), len(want)) {
		if !like(fmt.Sprint(got[i]), fmt.Sprint(want[i])) {
			return false
		}
	}
	return len(got) == len(want)
}

// lines has a line for each value. Text is quoted.
func lines(values []any) string {
	var b strings.Builder
	for _, v := range values {
		form := "\t%v\n"
		if _, text := v.(string); text {
			form = "\t%q\n"
		}
		fmt.Fprintf(&b, form, v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// like reports whether a text is the pattern, in which Any stands for any text.
func like(text, pattern string) bool {
	parts := strings.Split(pattern, Any)
	text, ok := strings.CutPrefix(text, parts[0])
	for i, part := range parts[1:] {
		if i == len(parts)-2 {
			return ok && strings.HasSuffix(text, part)
		}
		var found bool
		_, text, found = strings.Cut(text, part)
		ok = ok && found
	}
	return ok && text == ""
}

// At is s[i], or the zero value where s is shorter.
func At[T any](s []T, i int) (v T) {
	if i < len(s) {
		v = s[i]
	}
	return v
}
