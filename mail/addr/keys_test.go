package addr

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestKeysGoFromTheMailboxToTheLastLabel(t *testing.T) {
	label63 := strings.Repeat("x", 63)
	domain253 := strings.Join([]string{label63, label63, label63, label63[:61]}, ".")
	tests := []struct {
		name, sender string
		want         []Key
	}{
		{"null sender has none", "<>", nil},
		{"path without domain has none", "root", nil},
		{"address", "x@a.b.test", []Key{
			{"x@a.b.test", Address, 0}, {"x@", Local, 0},
			{"a.b.test", Domain, 3}, {"b.test", Domain, 2}, {"test", Domain, 1},
		}},
		{"single label", "root@mailhost", []Key{
			{"root@mailhost", Address, 0}, {"root@", Local, 0}, {"mailhost", Domain, 1},
		}},
		{"@ in quotes", `"a@b"@test`, []Key{
			{`"a@b"@test`, Address, 0}, {`"a@b"@`, Local, 0}, {"test", Domain, 1},
		}},
		{"literal is one label and has no parents", "x@[IPv6:2001:DB8::7]", []Key{
			{"x@[ipv6:2001:db8::7]", Address, 0}, {"x@", Local, 0}, {"[ipv6:2001:db8::7]", Domain, 1},
		}},
		{"IPv4 literal", "x@[198.51.100.23]", []Key{
			{"x@[198.51.100.23]", Address, 0}, {"x@", Local, 0}, {"[198.51.100.23]", Domain, 1},
		}},
		{"254 octets", strings.Repeat("v", 249) + "@test", []Key{
			{strings.Repeat("v", 249) + "@test", Address, 0}, {strings.Repeat("v", 249) + "@", Local, 0}, {"test", Domain, 1},
		}},
		{"255 octets: domain only", strings.Repeat("v", 250) + "@test", []Key{{"test", Domain, 1}}},
		{"domain of 253 octets: domain only", "x@" + domain253, []Key{
			{domain253, Domain, 4}, {domain253[64:], Domain, 3}, {domain253[128:], Domain, 2}, {domain253[192:], Domain, 1},
		}},
		{"domain of 254 octets: its parents", "x@" + domain253 + "x", []Key{
			{"?." + domain253[64:] + "x", Domain, 4}, {domain253[64:] + "x", Domain, 3}, {domain253[128:] + "x", Domain, 2}, {domain253[192:] + "x", Domain, 1},
		}},
		{"a dot behind 253 octets does not count", "x@" + domain253 + ".", []Key{
			{domain253, Domain, 4}, {domain253[64:], Domain, 3}, {domain253[128:], Domain, 2}, {domain253[192:], Domain, 1},
		}},
	}
	for _, tt := range tests {
		a := testkit.Value(Parse(tt.sender))(t)
		testkit.EqualSlices(t, tt.name, a.Keys(nil), tt.want)
	}
}

func TestDomainAndItsParents(t *testing.T) {
	tests := []struct{ name, domain, want string }{
		{"three labels", "Mx.Bulk.Test.", "mx.bulk.test/3 bulk.test/2 test/1"},
		{"one label", "test", "test/1"},
		{"literal", "[198.51.100.23]", "[198.51.100.23]/1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key := testkit.Value(DomainKey(tt.domain))(t)
			var got []string
			for _, k := range key.AndParents(nil) {
				if k.Kind != Domain {
					t.Errorf("%+v is no domain", k)
				}
				got = append(got, fmt.Sprintf("%s/%d", k.Text, k.Labels))
			}
			testkit.Equal(t, fmt.Sprintf("AndParents of %q", tt.domain), strings.Join(got, " "), tt.want)
		})
	}
	if keys := (Key{Text: "offers@", Kind: Local}).AndParents(nil); len(keys) != 1 {
		t.Errorf("of a local-part: %v", keys)
	}
}

func TestMaxKeysHolds(t *testing.T) {
	tests := []struct {
		name, sender string
		want         int
	}{
		{"most labels with room for a local-part in 254 octets", "x@" + strings.Repeat("y.", 125) + "zz", 2 + 126},
		{"most labels", "x@" + strings.Repeat("y.", 126) + "z", 127},
	}
	for _, tt := range tests {
		a, err := Parse(tt.sender)
		if got := len(a.Keys(nil)); err != nil || got != tt.want || got > MaxKeys {
			t.Errorf("%s: %d keys, %v, want %d", tt.name, got, err, tt.want)
		}
	}
}

func TestAddrParts(t *testing.T) {
	tests := []struct{ in, local, domain string }{
		{"<>", "", ""},
		{"root", "root", ""},
		{`"A@b"@Test`, `"a@b"`, "test"},
		{"x@[198.51.100.23]", "x", "[198.51.100.23]"},
	}
	for _, tt := range tests {
		a, err := Parse(tt.in)
		if err != nil || a.Local() != tt.local || a.Domain() != tt.domain || a.Null() != (tt.in == "<>") {
			t.Errorf("Parse(%q): %q, %q, %v, want %q, %q", tt.in, a.Local(), a.Domain(), err, tt.local, tt.domain)
		}
	}
}

func TestDomainKey(t *testing.T) {
	tests := []struct {
		name, in, want string
		labels         uint8
	}{
		{"canonical", "bulk.test", "bulk.test", 2},
		{"capitals and a dot", "Mailings.Shop.TEST.", "mailings.shop.test", 3},
		{"single label", "test", "test", 1},
		{"U-label", "bücher.test", "xn--bcher-kva.test", 2},
		{"literal", "[IPv6:2001:DB8::7]", "[ipv6:2001:db8::7]", 1},
		{"253 octets", strings.Repeat("x.", 126) + "y", strings.Repeat("x.", 126) + "y", 127},
		{"253 octets and a dot", strings.Repeat("x.", 126) + "y.", strings.Repeat("x.", 126) + "y", 127},
	}
	for _, tt := range tests {
		if k, err := DomainKey(tt.in); err != nil || k != (Key{tt.want, Domain, tt.labels}) {
			t.Errorf("%s: DomainKey(%q) = %v, %v, want %q with %d labels", tt.name, tt.in, k, err, tt.want, tt.labels)
		}
	}
}

func TestDomainKeyRefuses(t *testing.T) {
	tests := []struct {
		name, in string
		want     Class
	}{
		{"empty", "", Syntax},
		{"dot", ".", Syntax},
		{"leading dot", ".bulk.test", Syntax},
		{"star", "*.bulk.test", Syntax},
		{"@", "a@bulk.test", Syntax},
		{"address", "198.51.100.23", Syntax},
		{"port", "bulk.test:25", Syntax},
		{"two trailing dots", "bulk.test..", Syntax},
		{"xn-- alone in full width", "\uFF58n--.test", IDNA},
		{"254 octets", strings.Repeat("x.", 126) + "yy", TooLong},
		{"254 octets in A-form only", strings.Repeat("ü.", 40) + "test", TooLong},
		{"very long", strings.Repeat("x.", 5000), TooLong},
		{"invisible", "bu\u200Blk.test", Invisible},
		{"NUL", "bulk.test\x00", NUL},
	}
	for _, tt := range tests {
		k, err := DomainKey(tt.in)
		var e *Error
		if !errors.As(err, &e) || e.Class != tt.want || k != (Key{}) {
			t.Errorf("%s: DomainKey(%.40q) = %v, %v, want class %s", tt.name, tt.in, k, err, tt.want)
		}
	}
}

func TestLocalKey(t *testing.T) {
	tests := []struct {
		name, in, want string
		class          Class
	}{
		{"atom", "Offers", "offers@", ""},
		{"needless quotes", `"bulk.mail"`, "bulk.mail@", ""},
		{"needed quotes", `"odd one"`, `"odd one"@`, ""},
		{"UTF-8", "JÖRG", "jörg@", ""},
		{"longest", strings.Repeat("v", 252), strings.Repeat("v", 252) + "@", ""},
		{"no room for a domain", strings.Repeat("v", 253), "", TooLong},
		{"empty", "", "", Syntax},
		{"with the @", "offers@", "", Syntax},
		{"blank", "odd one", "", Syntax},
		{"joiner", "a\u200Db", "", Invisible},
		{"very long", strings.Repeat("v", 9000), "", TooLong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k, err := LocalKey(tt.in)
			var e *Error
			switch {
			case tt.class == "" && (err != nil || k != Key{tt.want, Local, 0}):
				t.Errorf("LocalKey(%.40q) = %v, %v, want %q", tt.in, k, err, tt.want)
			case tt.class != "" && (!errors.As(err, &e) || e.Class != tt.class || k != Key{}):
				t.Errorf("LocalKey(%.40q) = %v, %v, want class %s", tt.in, k, err, tt.class)
			}
		})
	}
}

// checkKeys says what makes a look-up find what a list holds: every key of a
// sender is the key that an entry for it gets.
func checkKeys(t *testing.T, a Addr) {
	t.Helper()
	keys := a.Keys(nil)
	if len(keys) > MaxKeys {
		t.Fatalf("%.200q has %d keys", a, len(keys))
	}
	parent := a.Domain()
	if len(parent) > maxDomain { // the key below its parents is one that no entry has
		if len(keys) == 0 || !strings.HasPrefix(keys[0].Text, "?.") || !strings.HasSuffix(parent, keys[0].Text[1:]) {
			t.Fatalf("%.200q: keys %v", a, keys)
		}
		parent, keys = keys[0].Text[2:], keys[1:]
	}
	for _, k := range keys {
		var entry Key
		var err error
		switch k.Kind {
		case Address:
			var whole Addr
			if whole, err = Parse(k.Text); err == nil {
				entry, _ = whole.Key()
			}
		case Local:
			entry, err = LocalKey(a.Local())
		case Domain:
			if k.Text != parent {
				t.Fatalf("%.200q: domain key %.200q, want %.200q", a, k.Text, parent)
			}
			entry, err = DomainKey(parent)
			if parent[0] == '[' {
				parent = ""
			}
			_, parent, _ = strings.Cut(parent, ".")
		}
		if err != nil || entry != k || len(k.Text) > maxAddress {
			t.Fatalf("%.200q: key %v, but an entry for it is %v, %v", a, k, entry, err)
		}
	}
	if len(keys) > 0 && parent != "" {
		t.Fatalf("%.200q: no key for %.200q", a, parent)
	}
}

func ExampleAddr_Keys() {
	a, err := Parse("<Promo@Mail.Bulk.TEST>")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range a.Keys(nil) {
		fmt.Println(k.Text)
	}
	// Output:
	// promo@mail.bulk.test
	// promo@
	// mail.bulk.test
	// bulk.test
	// test
}

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
		{"a.+t@here.example", "+", "a.@here.example"},
		{`"a.+t"@here.example`, "+", "a.@here.example"},
		{"a.+t", "+", `"a."`},
		{`"a..b+t"`, "+", `"a..b"`},
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
