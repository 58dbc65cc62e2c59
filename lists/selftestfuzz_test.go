package lists

import (
	"slices"
	"strings"
	"testing"
)

// FuzzSelfTest: what is taken for a test names senders that can be looked up, and
// says the same when it is written down from what was understood.
func FuzzSelfTest(f *testing.F) {
	for _, text := range []string{"block new@bulk.test", "pass <> a@x.test", `block "a b"@x.test <@r.test:c@x.test>`, "pass ü@bücher.example",
		"block x@[198.51.100.7]", "pass", "block root", "deny x@y.test", `block "`, "block a@x.test,b@x.test"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		test, err := parseTest(trim(text))
		if err != nil {
			if test != nil || strings.ContainsAny(err.Error(), "\r\n") && !strings.ContainsAny(text, "\r\n") {
				t.Fatalf("parseTest(%q) = %v, %v", text, test, err)
			}
			return
		}
		word := "pass"
		if test.Block {
			word = "block"
		}
		again := word
		for _, a := range test.Senders {
			if !a.Null() && (a.Domain() == "" || len(a.Keys(nil)) == 0 && len(a.Domain()) <= 253) {
				t.Fatalf("%q: nothing can be looked up of %q", text, a)
			}
			again += " <" + a.String() + ">"
		}
		second, err := parseTest(again)
		if err != nil || second.Block != test.Block || !slices.Equal(second.Senders, test.Senders) {
			t.Fatalf("%q is %q, which is %v, %v", text, again, second, err)
		}
	})
}
