package header_test

import (
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit/race"
	"blockd/mail/header"
)

// A field of the largest size costs a fraction of a second, whatever it is made of: the
// mail server waits for the answer.
func TestHostileFieldsAreFast(t *testing.T) {
	race.Skip(t)
	for _, unit := range []string{"(", ")", "\"", "<", ">", "\\", "\\\"", ",", ":", ";", "@", "a@", "a@b,", "a ", "a b ", "=?x?Q?a?= ", "=?utf-8?Q?a?=", "[", "a@[", "(\\", "<@a:", "<@a,", "g:", "g:;", "\t", "\n", "\"a\" ", "\"a\"@", "é", "\xff", ".", "a.", "a@b <", "a <b@c>, ", "\"@", "(x ", "\"\" ", "\"a\"   @", "< @ . ", "\\\"@", "@\"",
		"a\u200d@b,", "\u00ad", "\uff20", "\"a\".", ".\"a\"", "@\"a\"", "<=?x?Q?a?=@b>", "=?utf-8?Q?a?=@b,", "<=?", "=?x?B?YQ=@", "(a)\"b\"", "\u3000"} {
		for _, end := range []string{"", " <a@b.example>", ">"} {
			text := strings.Repeat(unit, header.MaxOctets/len(unit)) + end
			begun := time.Now()
			header.Addresses(text)
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("%q and %q: %v", unit, end, took)
			}
		}
	}
}
