package msgauth

import (
	"fmt"
	"io"
	"mime"
	"net/mail"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestAuthor(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"an address", "a@x.example", "x.example"},
		{"in brackets", "<a@x.example>", "x.example"},
		{"with a name", "Ann B. Smith <a@x.example>", "x.example"},
		{"with a quoted name", `"Smith, Ann <b@evil.example>" <a@x.example>`, "x.example"},
		{"with an encoded name", "=?utf-8?Q?J=C3=B6rg?= <a@x.example>", "x.example"},
		{"with a name in UTF-8", "Jörg <a@x.example>", "x.example"},
		{"capitals", "a@X.EXAMPLE", "x.example"},
		{"a name of another script", "a@BÜCHER.example", "xn--bcher-kva.example"},
		{"folded", "Ann\r\n <a@x.example>", "x.example"},
		{"comments around", "(one) a@x.example (two (and three))", "x.example"},
		{"a comment in the name", "Ann (b@evil.example) <a@x.example>", "x.example"},
		{"a quoted local-part", `"a@evil.example"@x.example`, "x.example"},
		{"a dotted local-part", `a."b c".d@x.example`, "x.example"},

		{"two addresses", "a@x.example, b@x.example", ""},
		{"two addresses without a comma", "a@x.example b@x.example", ""},
		{"two in brackets", "<a@x.example> <b@x.example>", ""},
		{"something behind the brackets", "<a@x.example> b", ""},
		{"an address as a name without quotes", "a@x.example <b@evil.example>", ""},
		{"a group", "friends: a@x.example;", ""},
		{"an empty group", "undisclosed:;", ""},
		{"a route", "<@relay.example:a@x.example>", ""},
		{"an address literal", "a@[192.0.2.1]", ""},
		{"blanks around the @", "a @ x.example", ""},
		{"a blank in the domain", "a@x. example", ""},
		{"a comment in the domain", "a@x(.evil).example", ""},
		{"a folded domain", "a@x.\r\n example", ""},
		{"an open quote", `"Ann <a@x.example>`, ""},
		{"an open comment", "a@x.example (Ann", ""},
		{"a comment that ends twice", "a@x.example (Ann))", ""},
		{"nested comments beyond bounds", strings.Repeat("(", 21) + strings.Repeat(")", 21) + "a@x.example", ""},
		{"an escape outside quotes", `a\@x.example`, ""},
		{"a NUL", "a@x.example\x00", ""},
		{"no @", "x.example", ""},
		{"no local-part", "@x.example", ""},
		{"no domain", "a@", ""},
		{"an empty label", "a@x..example", ""},
		{"a label of 64 octets", "a@" + strings.Repeat("x", 64) + ".example", ""},
		{"nothing", "", ""},
		{"the null address", "<>", ""},
	} {
		got, err := Author(tt.value)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: Author(%q) = %q, %v; want %q", tt.name, tt.value, got, err, tt.want)
		}
	}
}

// FuzzAuthor compares with the parser of net/mail, which takes more: who both see
// must be the same.
func FuzzAuthor(f *testing.F) {
	for _, seed := range []string{"a@x.example", `"Smith, Ann" <a@x.example>`, "Ann (c) <a.b@X.example>", `"a@b"@c.example (x)`, "a@x.example, b@y.example", "g: a@b.example;"} {
		f.Add(seed)
	}
	theirs := mail.AddressParser{WordDecoder: &mime.WordDecoder{CharsetReader: func(_ string, r io.Reader) (io.Reader, error) { return r, nil }}}
	f.Fuzz(func(t *testing.T, value string) {
		domain, err := Author(value)
		if err != nil {
			return
		}
		if again := canonical(domain); again != domain {
			t.Fatalf("Author(%q) = %q, which canonically is %q", value, domain, again)
		}
		all, err := theirs.ParseList(value)
		if err != nil {
			return // it is stricter with quotes and characters
		}
		testkit.MustEqual(t, fmt.Sprintf("Author(%q) = %q, and net/mail sees: addresses", value, domain), len(all), 1)
		if other := canonical(afterAt(all[0].Address)); other != domain {
			t.Fatalf("Author(%q) = %q, and net/mail sees %q", value, domain, other)
		}
	})
}
