package addr

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestParseOwner(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"anna@here.example", "anna@here.example"},
		{"Anna@HERE.example", "anna@here.example"},
		{"<anna@here.example>", "anna@here.example"},
		{`"anna"@here.example.`, "anna@here.example"},
		{"anna+shop@here.example", "anna+shop@here.example"},
		{"here.example", "here.example"},
		{"@Here.Example.", "here.example"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"@bücher.example", "xn--bcher-kva.example"},
		{`"a b"@here.example`, `"a b"@here.example`},
		{"@[192.0.2.1]", "[192.0.2.1]"},
	} {
		got := testkit.Value(ParseOwner(c.text))(t)
		testkit.Equal(t, fmt.Sprintf("ParseOwner(%q)", c.text), got.Text, c.want)
		testkit.Equal(t, fmt.Sprintf("ParseOwner(%q)", got.Text), testkit.Value(ParseOwner(got.Text))(t), got)
	}
	for _, text := range []string{"", "@", "<>", "anna@", "a b", "anna@here.example x", "@@here.example", "a@b@c", "\x05anna@here.example",
		strings.Repeat("a", 250) + "@here.example", "7"} {
		if got, err := ParseOwner(text); err == nil {
			t.Errorf("ParseOwner(%q) = %q, want an error", text, got.Text)
		}
	}
}

func TestUntagged(t *testing.T) {
	for _, c := range []struct{ address, separators, want string }{
		{"anna+shop@here.example", "+", "anna@here.example"},
		{"anna+shop+x@here.example", "+", "anna@here.example"},
		{"anna@here.example", "+", "anna@here.example"},
		{"anna+shop@here.example", "", "anna+shop@here.example"},
		{"anna-x+shop@here.example", "+-", "anna@here.example"},
		{"+anna@here.example", "+", "+anna@here.example"},
		{"+anna+shop@here.example", "+", "+anna@here.example"},
		{`"anna+a b"@here.example`, "+", "anna@here.example"},
		{`"an na+x"@here.example`, "+", `"an na"@here.example`},
		{`"+x y"@here.example`, "+", `"+x y"@here.example`},
		{`"a\"+x"@here.example`, "+", `"a\""@here.example`},
		{"anna+shop", "+", "anna"},
		{"anna+@here.example", "+", "anna@here.example"},
	} {
		a := testkit.Value(Parse(c.address))(t)
		got := a.Untagged(c.separators)
		if got.String() != c.want {
			t.Errorf("%q.Untagged(%q) = %q, want %q", c.address, c.separators, got, c.want)
		}
		if parsed, err := Parse(got.String()); err != nil || parsed != got {
			t.Errorf("%q is not what Parse makes of it: %v", got, err)
		}
	}
	a, _ := Parse("anna@here.example")
	if n := testing.AllocsPerRun(100, func() { a.Untagged("+") }); n > 0 {
		t.Errorf("Untagged allocates %v times without a tag", n)
	}
}

func FuzzOwner(f *testing.F) {
	for _, text := range []string{"anna+shop@here.example", "@here.example", `"a+ b"@x.example`, `"\\+"@x.example`, "here.example", "+@x.example", `"a.+"@x`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ParseOwner(text)
		if err != nil {
			return
		}
		if k.Kind == Local || strings.ContainsFunc(k.Text, func(c rune) bool { return c < ' ' }) {
			t.Fatalf("ParseOwner(%q) = %q", text, k.Text)
		}
		if again, err := ParseOwner(k.Text); err != nil || again != k {
			t.Fatalf("ParseOwner(%q) = %+v, %v; of its own text %+v", text, k, err, again)
		}
		if k.Kind != Address {
			return
		}
		a := testkit.Value(Parse(k.Text))(t)
		bare := a.Untagged("+")
		if bare.Domain() != a.Domain() || len(bare.String()) > len(a.String())+2 {
			t.Fatalf("%q.Untagged is %q", a, bare)
		}
		if parsed, err := Parse(bare.String()); err != nil || parsed != bare || bare.Untagged("+") != bare {
			t.Fatalf("%q.Untagged is %q, which Parse reads as %q, %v", a, bare, parsed, err)
		}
	})
}
