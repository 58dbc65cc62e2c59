package lists_test

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

// tests reads text and returns what its self-tests say, a line each.
func tests(t *testing.T, format, text string) (got []string, sum lists.Summary) {
	t.Helper()
	var kept []*lists.Item
	sum, err := lists.ReadFile(t.Context(), testkit.File(t, "list", text), lists.Settings{Format: format}, func(it *lists.Item) error {
		if it.Class == lists.SelfTest || it.Kind == lists.Err {
			kept = append(kept, &lists.Item{Line: it.Line, Kind: it.Kind, Class: it.Class, Test: it.Test})
		}
		return nil
	})
	testkit.Must(t, err)
	for _, it := range kept { // behind the end: a test may be kept
		line := fmt.Sprintf("%d %s %s", it.Line, it.Kind, it.Class)
		if it.Test != nil {
			line += fmt.Sprintf(" block=%t", it.Test.Block)
			for _, a := range it.Test.Senders {
				line += " <" + a.String() + ">"
			}
		}
		got = append(got, line)
	}
	return got, sum
}

func TestSelfTestLines(t *testing.T) {
	for _, tt := range []struct{ rule, format, line, want string }{
		{"block", "plain", "#? block new@bulk.test", "1 skip self-test block=true <new@bulk.test>"},
		{"pass", "plain", "#? pass press@bulk.test", "1 skip self-test block=false <press@bulk.test>"},
		{"several senders", "plain", "#? pass a@x.test\tB@X.test.  <c@x.test>", "1 skip self-test block=false <a@x.test> <b@x.test> <c@x.test>"},
		{"a blank in quotes", "plain", `#? block "a b"@x.test c@x.test`, `1 skip self-test block=true <"a b"@x.test> <c@x.test>`},
		{"the null sender", "plain", "#? pass <>", "1 skip self-test block=false <>"},
		{"no blank behind the mark", "plain", "#?block new@bulk.test", "1 skip self-test block=true <new@bulk.test>"},
		{"blanks before the mark", "plain", "  #? block new@bulk.test", "1 skip self-test block=true <new@bulk.test>"},
		{"semicolon", "plain", ";? block new@bulk.test", "1 skip self-test block=true <new@bulk.test>"},
		{"slashes", "plain", "//? block new@bulk.test", "1 skip self-test block=true <new@bulk.test>"},
		{"an exclamation mark where that is an exception", "plain", "!? block new@bulk.test", "1 err syntax"},
		{"an exclamation mark where that is a comment", "adblock", "!? block new@bulk.test", "1 skip self-test block=true <new@bulk.test>"},
		{"hosts", "hosts", "#? block new@bulk.test", "1 skip self-test block=true <new@bulk.test>"},
		{"postfix", "postfix", "#? block new@bulk.test", "1 skip self-test block=true <new@bulk.test>"},
		{"a mark that is none of the format's", "postfix", ";? block new@bulk.test", "1 err unsupported-action"},
		{"a comment that asks nothing", "plain", "# ? block new@bulk.test", ""},
		{"a trailing comment is none", "plain", "bulk.test #? block", ""},

		{"another word", "plain", "#? deny new@bulk.test", "1 err syntax"},
		{"a word in capitals", "plain", "#? BLOCK new@bulk.test", "1 err syntax"},
		{"no word", "plain", "#?", "1 err syntax"},
		{"no sender", "plain", "#? block", "1 err syntax"},
		{"a name is no sender", "plain", "#? block bulk.test", "1 err syntax"},
		{"a comma", "plain", "#? block a@x.test, b@x.test", "1 err syntax"},
		{"one bad sender refuses the line", "plain", "#? block a@x.test b@", "1 err syntax"},
		{"octets that are not UTF-8", "plain", "#? block \xff@x.test", "1 err bad-utf8"},
		{"a line of 64 KiB and more", "plain", "#? block " + strings.Repeat("a@x.test ", 10_000), "1 err too-long"},
		{"a long comment", "plain", "# " + strings.Repeat("a@x.test ", 10_000), ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			got, _ := tests(t, tt.format, tt.line+"\nlast.test"+tail[tt.format]+"\n")
			testkit.Equal(t, tt.format, strings.Join(got, "; "), tt.want)
		})
	}
}

func TestSelfTestsAreBounded(t *testing.T) {
	text := "last.test\n" + strings.Repeat("#? pass a@x.test b@x.test\n", 501)
	got, sum := tests(t, "plain", text)
	if len(got) != 501 || got[499] != "501 skip self-test block=false <a@x.test> <b@x.test>" || got[500] != "502 err self-test" {
		t.Errorf("%d lines, the last two %q", len(got), got[len(got)-2:])
	}
	if sum.Skipped != 500 || sum.Errors != 1 || sum.Entries != 1 {
		t.Errorf("summary %+v", sum)
	}
}
