package msgauth

import (
	"bufio"
	"fmt"
	"io"
	"mime"
	"net/mail"
	"os"
	"regexp"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestOrganisation(t *testing.T) {
	for domain, want := range map[string]string{
		"x.example": "x.example", "a.b.x.example": "x.example", "X.EXAMPLE.": "x.example", "bücher.example": "xn--bcher-kva.example",
		"a.co.uk": "a.co.uk", "mx.a.co.uk": "a.co.uk", "a.github.io": "a.github.io", "_spf.x.example": "x.example",
		"co.uk": "", "com": "", "github.io": "", "example": "", "": "", ".": "", "a..example": "", "192.0.2.1": "", "[192.0.2.1]": "",
		"a b.example": "", `a\.example`: "", strings.Repeat("a", 64) + ".example": "", strings.Repeat("a.", 127) + "example": "",
	} {
		testkit.Equal(t, fmt.Sprintf("Organisation(%q)", domain), Organisation(domain), want)
	}
}

func TestAligned(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"x.example", "x.example", true}, {"a.x.example", "b.x.example", true}, {"X.example", "mx.x.EXAMPLE", true},
		{"bücher.example", "mx.xn--bcher-kva.example", true},
		{"x.example", "y.example", false}, {"x.example", "notx.example", false}, {"co.uk", "co.uk", false},
		{"a.co.uk", "b.co.uk", false}, {"a.github.io", "b.github.io", false}, {"", "", false}, {"x.example", "", false},
	} {
		testkit.Equal(t, fmt.Sprintf("Aligned(%q, %q)", tt.a, tt.b), Aligned(tt.a, tt.b), tt.want)
	}
}

// TestSuffixVectors runs the vectors of the Public Suffix List's own project.
func TestSuffixVectors(t *testing.T) {
	f := testkit.Value(os.Open(testkit.Shared(t, "psl/test_psl.txt")))(t)
	defer f.Close()
	vector := regexp.MustCompile(`^checkPublicSuffix\((?:null|'([^']*)'), (?:null|'([^']*)')\);`)
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := vector.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		n++
		if strings.HasPrefix(m[1], ".") {
			continue // no domain at all, here
		}
		testkit.Equal(t, fmt.Sprintf("Organisation(%q)", m[1]), Organisation(m[1]), canonical(m[2]))
	}
	if n < 70 {
		t.Errorf("%d vectors, want over 70", n)
	}
}

// FuzzOrganisation holds what alignment must be: the same both ways, of what is its
// own organisation, and never by a suffix.
func FuzzOrganisation(f *testing.F) {
	f.Add("a.x.example", "x.example")
	f.Add("BÜCHER.co.uk", "co.uk")
	f.Add("x.github.io", "y.github.io")
	f.Fuzz(func(t *testing.T, a, b string) {
		org := Organisation(a)
		if Organisation(org) != org {
			t.Fatalf("Organisation(%q) = %q, whose own is %q", a, org, Organisation(org))
		}
		if org != "" && !strings.HasSuffix("."+canonical(a), "."+org) {
			t.Fatalf("Organisation(%q) = %q, which is not above it", a, org)
		}
		if Aligned(a, b) != Aligned(b, a) || Aligned(a, a) != (org != "") {
			t.Fatalf("Aligned(%q, %q) is not what it should be", a, b)
		}
		if org != "" && !Aligned(a, "mx."+org) {
			t.Fatalf("%q is not aligned with a host below %q", a, org)
		}
	})
}

func TestSuffixListTellsItsDay(t *testing.T) {
	if version, day := SuffixList(); day.Year() < 2024 {
		t.Errorf("%q is of %s", version, day)
	}
}

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
		_, after, _ := cutLast(all[0].Address, '@')
		if other := canonical(after); other != domain {
			t.Fatalf("Author(%q) = %q, and net/mail sees %q", value, domain, other)
		}
	})
}
