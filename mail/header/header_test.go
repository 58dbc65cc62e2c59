package header_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/mail/header"
)

func TestAddresses(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"bare", "a@b.example", []string{"a@b.example"}},
		{"with a name", "A. Writer <a@b.example>", []string{"a@b.example"}},
		{"with a quoted name that holds an address", `"x@y.example" <a@b.example>`, []string{"a@b.example"}},
		{"with an unquoted name that is an address", "x@y.example <a@b.example>", []string{"a@b.example"}},
		{"several", "a@b.example, C <c@d.example>", []string{"a@b.example", "c@d.example"}},
		{"several, one of them malformed", "x@y.example <a@b.example>, c@d.example", []string{"a@b.example", "c@d.example"}},
		{"group", "staff: a@b.example, c@d.example;", []string{"a@b.example", "c@d.example"}},
		{"empty group", "undisclosed-recipients:;", nil},
		{"malformed group", "staff: x@y.example <a@b.example>;", []string{"a@b.example"}},
		{"quoted local-part that must be", `"a b"@c.example`, []string{`"a b"@c.example`}},
		{"quoted local-part that need not be", `"a"@c.example`, []string{"a@c.example"}},
		{"quoted local-part in a malformed list", `x@y.example <"a b"@c.example>`, []string{`"a b"@c.example`}},
		{"literal", "a@[192.0.2.1]", []string{"a@[192.0.2.1]"}},
		{"comment", "a@b.example (A. Writer)", []string{"a@b.example"}},
		{"comment that holds an address", "(x@y.example) a@b.example", []string{"a@b.example"}},
		{"folded with CRLF", "A\r\n <a@b.example>", []string{"a@b.example"}},
		{"folded with LF alone", "A\n\t<a@b.example>", []string{"a@b.example"}},
		{"foreign characters of a known set", "=?utf-8?B?w7w=?= <a@b.example>", []string{"a@b.example"}},
		{"foreign characters of any set", "=?gb2312?B?xOO6ww==?= <a@b.example>", []string{"a@b.example"}},
		{"raw foreign characters", "Jürgen <a@b.example>", []string{"a@b.example"}},
		{"domain in foreign characters", "a@bücher.example", []string{"a@bücher.example"}},
		{"source route", "<@r.example:a@b.example>", []string{"a@b.example"}},
		{"angle bracket without its pair", "A <a@b.example", []string{"a@b.example"}},
		{"quote without its pair", `"A <a@b.example>`, []string{"a@b.example"}},
		{"comment without its pair", "(A <a@b.example>", []string{"a@b.example"}},
		{"two in angle brackets", "<a@b.example> <c@d.example>", []string{"a@b.example", "c@d.example"}},
		{"semicolons between", "a@b.example; c@d.example", []string{"a@b.example", "c@d.example"}},
		{"blanks inside", "< a@b.example >", []string{"a@b.example"}},
		{"NUL", "a@b.example\x00", []string{"a@b.example"}},
		{"blanks around the at sign", "a @ b.example", []string{"a@b.example"}},
		{"blanks around the at sign, in angle brackets", "A <a @\n b.example>", []string{"a@b.example"}},
		{"blanks around a dot, in angle brackets", "<a@b. example>", []string{"a@b.example"}},
		{"blank behind a quoted local-part", `"a b" @c.example`, []string{`"a b"@c.example`}},
		{"quoted at sign in a malformed list", `C <"a@x y@z"@b.example> d, c@d.example`, []string{`"a@x y@z"@b.example`, "c@d.example"}},
		{"at signs in a row", "<x@a@b.example>", []string{"a@b.example"}},
		{"at signs with nothing between", "a@@b.example", []string{"a@b.example"}},
		{"at signs with nothing between, in angle brackets", "A <a@@b.example>", []string{"a@b.example"}},
		{"at sign with nothing behind it", "A <a@b.example@>", []string{"a@b.example"}},
		{"at signs with nothing before them", "@@b.example", nil},
		{"at signs alone", "<@@>, a@", nil},
		{"angle brackets twice", "A <<a@b.example>>", []string{"a@b.example"}},
		{"angle bracket within another", "<a@b.example <c@d.example>", []string{"a@b.example", "c@d.example"}},
		{"two in one pair of angle brackets", "<a@b.example, c@d.example>", []string{"a@b.example", "c@d.example"}},
		{"empty angle brackets behind it", "a@b.example <>", []string{"a@b.example"}},
		{"empty angle brackets alone", "<>", nil},
		{"another in front of a quote without its pair", `a@b.example, "C <c@d.example>`, []string{"a@b.example", "c@d.example"}},
		{"another in front of a comment without its end", "a@b.example, (C <c@d.example>", []string{"a@b.example", "c@d.example"}},
		{"encoded, and nothing beside it", "=?utf-8?B?PGFAYi5leGFtcGxlPg==?=", []string{"a@b.example"}},
		{"encoded name behind which nothing is", "=?utf-8?B?YUBiLmV4YW1wbGU=?= <>", []string{"a@b.example"}},
		{"dots that no local-part has", "A <a..b@c.example>, .a@c.example, a.@c.example", []string{"a..b@c.example", ".a@c.example", "a.@c.example"}},
		{"local-part of several words, one quoted", `a."b"@c.example`, []string{"a.b@c.example"}},
		{"local-part of several words, the first quoted", `"a".b@c.example`, []string{"a.b@c.example"}},
		{"in apostrophes", "'a@b.example'", []string{"a@b.example"}},
		{"in square brackets", "[a@b.example]", []string{"a@b.example"}},
		{"backslash in the local-part", `a\b@c.example`, []string{`"a\\b"@c.example`}},
		{"control octet in the local-part", "a\x01b@c.example", []string{"a?b@c.example"}},
		{"no UTF-8 in the local-part", "a\xffb@c.example", []string{"aÿb@c.example"}},
		{"soft hyphen of Latin-1", "a\xadb@c.example", []string{"ab@c.example"}},
		{"soft hyphen", "a\u00adb@c.\u00adexample", []string{"ab@c.example"}},
		{"zero width beside a quote", "\"a\"\u200b@c.example", []string{"a@c.example"}},
		{"joiner", "a@b\u200d.example", []string{"a@b\u200d.example", "a@b.example"}},
		{"emoji with joiners in a name", "\U0001F468\u200d\U0001F469\u200d\U0001F467 <a@b.example>", []string{"a@b.example"}},
		{"full-width @", "a\uff20b.example", []string{"a@b.example"}},
		{"full-width @ in angle brackets", "A <a\uff20b.example>", []string{"a@b.example"}},
		{"full-width @ in a name", "友達\uff20会社 <a@b.example>, c@d.example", []string{"a@b.example", "c@d.example"}},
		{"full-width @ in a quoted name", "\"x\uff20y.example\" <a@b.example>", []string{"a@b.example"}},
		{"no-break space beside the @", "A <a\u00a0@b.example>", []string{"a@b.example"}},
		{"domain in quotes", `A <a@"b.example">`, []string{"a@b.example"}},
		{"domain in quotes, without angle brackets", `a@"b.example"`, []string{"a@b.example"}},
		{"label in quotes", `a@"b".example`, []string{"a@b.example"}},
		{"domain with a backslash", `<a@b\.ex\ample>`, []string{"a@b.example"}},
		{"encoded local-part", "A <=?utf-8?Q?a?=@b.example>", []string{"=?utf-8?Q?a?=@b.example", "a@b.example"}},
		{"encoded domain", "A <a@=?utf-8?Q?b.example?=>", []string{"a@=?utf-8?Q?b.example?=", "a@b.example"}},
		{"encoded address", "A <=?utf-8?B?YUBiLmV4YW1wbGU=?=>", []string{"a@b.example"}},
		{"encoded address without its padding", "A <=?utf-8?b?YUBiLmV4YW1wbGU?=>", []string{"a@b.example"}},
		{"encoded address with too much padding", "A <=?utf-8?b?YUBiLmV4YW1wbGU===?=>", []string{"a@b.example"}},
		{"encoded address behind another", "c@d.example, <=?utf-8?B?YUBiLmV4YW1wbGU=?=>", []string{"c@d.example", "a@b.example"}},
		{"encoded address behind another, without angle brackets", "c@d.example, =?utf-8?Q?a=40b.example?=", []string{"c@d.example", "a@b.example"}},
		{"encoded address in two words", "=?utf-8?Q?a=40?= =?utf-8?Q?b.example?=", []string{"a@b.example"}},
		{"encoded soft hyphen", "<=?iso-8859-1?Q?a=AD?=@b.example>", []string{"=?iso-8859-1?Q?a=AD?=@b.example", "a@b.example"}},
		{"encoded in UTF-16", "<=?utf-16?B?AGEAQABiAC4AZQB4AGEAbQBwAGwAZQ==?=>", []string{"a@b.example"}},
		{"encoded name that looks like an address", "=?utf-8?Q?x=40y.example?= <a@b.example>", []string{"a@b.example"}},
		{"encoded name that looks like one in angle brackets", "=?utf-8?Q?=3Cx=40y.example=3E?= <a@b.example>", []string{"a@b.example"}},
		{"route in angle brackets and a comment", "<@r.example,(x)@s.example:a(b)@(c)b.example>", []string{"a@b.example"}},
		{"what no domain has", "a@b.example!x <>", []string{"a@b.example"}},
		{"blanks around a dot", "a @ b . example", []string{"a@b", "a@b.example"}},
		{"a name alone", "nobody", nil},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		testkit.EqualSlices(t, tt.name, header.Addresses(tt.text), tt.want)
	}
}

func TestSendersBounds(t *testing.T) {
	fields := func(n int, text func(int) string) *header.Senders {
		s := &header.Senders{}
		for i := range n {
			s.Add("From", text(i))
		}
		return s
	}
	one := func(i int) string { return fmt.Sprintf("a%d@b.example", i) }
	tests := []struct {
		name    string
		senders *header.Senders
		want    int // -1: refused
	}{
		{"none", &header.Senders{}, 0},
		{"as many fields as may be", fields(header.MaxFields, one), header.MaxFields},
		{"one more", fields(header.MaxFields+1, one), -1},
		{"as many octets as may be", fields(1, func(int) string { return strings.Repeat("x", header.MaxOctets) }), 0},
		{"one more octet", fields(1, func(int) string { return strings.Repeat("x", header.MaxOctets+1) }), -1},
		{"one address many times", fields(header.MaxFields, func(int) string { return "a@b.example, a@b.example" }), 1},
		{"more addresses than may be", fields(2, func(i int) string { return strings.Repeat(one(i)+",", 1) + list(600, i) }), -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, ok := tt.senders.Addresses()
			if !ok {
				all = make([]header.Field, 0)
			}
			if got := len(all); ok != (tt.want >= 0) || ok && got != tt.want {
				t.Errorf("%d addresses, %v, want %d", got, ok, tt.want)
			}
		})
	}
}

func list(n, seed int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf("b%d-%d@c.example", seed, i)
	}
	return strings.Join(parts, ", ")
}

// FuzzAddresses: whatever a field holds, an address in angle brackets behind it is
// found, if the field does not swallow it in a quote or comment of its own; and no
// address has a line end.
func FuzzAddresses(f *testing.F) {
	for _, text := range []string{"a@b.example", `"x" <a@b.example>`, "g: a@b, c@d;", "(c) a@b", `"`, "(", "<", "a@b <c@d>, =?x?B?AAAA?= <e@f>", "\\"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, a := range header.Addresses(text) {
			if strings.ContainsAny(a, "\r\n\x00") {
				t.Errorf("Addresses(%q) has %q", text, a)
			}
		}
		if strings.ContainsAny(text, `"()<>\[]`) {
			return
		}
		const listed = "listed@bad.example"
		if got := header.Addresses(text + ", <" + listed + ">"); !slices.Contains(got, listed) {
			t.Errorf("Addresses(%q and a listed one) = %q", text, got)
		}
	})
}

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
