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
		same := len(got) == len(want)
		for i := 0; same && i < len(got); i++ {
			same = like(fmt.Sprint(got[i]), fmt.Sprint(want[i]))
		}
		if !same {
			t.Helper()
			t.Errorf("%v:\n%s\nwant:\n%s", what, lines(got), lines(want))
		}
	}
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
