package addr

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestParseGivesOneCanonicalForm(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"null reverse-path", "<>", ""},
		{"null reverse-path without brackets", "", ""},
		{"canonical text stays", "promo@bulk.test", "promo@bulk.test"},
		{"angle brackets go", "<promo@bulk.test>", "promo@bulk.test"},
		{"capitals are lowered", "Promo@Bulk.TEST", "promo@bulk.test"},
		{"one trailing dot goes", "promo@bulk.test.", "promo@bulk.test"},
		{"one trailing dot goes inside brackets", "<promo@bulk.test.>", "promo@bulk.test"},
		{"a trailing ideographic full stop goes", "promo@bulk.test\u3002", "promo@bulk.test"},
		{"source route goes", "<@relay.test:promo@bulk.test>", "promo@bulk.test"},
		{"source route goes without brackets", "@relay.test:promo@bulk.test", "promo@bulk.test"},
		{"source route of several hosts", "<@a.test,@[192.0.2.1],@b.test:promo@bulk.test>", "promo@bulk.test"},
		{"path without domain", "root", "root"},
		{"path without domain in brackets", "<Root>", "root"},
		{"quoted local-part without domain", `<"Big Shop">`, `"big shop"`},
		{"single label", "root@mailhost", "root@mailhost"},

		{"needless quotes go", `"bulk.mail"@shop.test`, "bulk.mail@shop.test"},
		{"needed quotes stay", `"odd one"@bulk.test`, `"odd one"@bulk.test`},
		{"quotes around a leading !", `"!x"@bulk.test`, "!x@bulk.test"},
		{"hash needs no quotes", "a#b@bulk.test", "a#b@bulk.test"},
		{"star and question mark are atext", "a*?@bulk.test", "a*?@bulk.test"},
		{"= first is atext", "=x1@bulk.test", "=x1@bulk.test"},
		{"slashes are atext", "/x/y@bulk.test", "/x/y@bulk.test"},
		{"empty quoted string", `""@bulk.test`, `""@bulk.test`},
		{"@ in quotes", `"a@b"@bulk.test`, `"a@b"@bulk.test`},
		{"comma in quotes", `"a,b"@bulk.test`, `"a,b"@bulk.test`},
		{"dot first in the local-part", ".a@bulk.test", ".a@bulk.test"},
		{"dot last in the local-part", "Tail.@bulk.test", "tail.@bulk.test"},
		{"two dots in the local-part", "a..b@bulk.test", "a..b@bulk.test"},
		{"dots alone", "..@bulk.test", "..@bulk.test"},
		{"dot last, beyond ASCII", "JÖRG.@bulk.test", "jörg.@bulk.test"},
		{"dot last in quotes, without a domain", `"root."`, `"root."`},
		{"leading dot in quotes", `".a"@bulk.test`, ".a@bulk.test"},
		{"dot last in quotes", `"tail."@bulk.test`, "tail.@bulk.test"},
		{"double dot in quotes", `"a..b"@bulk.test`, "a..b@bulk.test"},
		{"double dot and a blank in quotes", `"a.. b"@bulk.test`, `"a.. b"@bulk.test`},
		{"needless backslash goes, and the quotes with it", `"a\b"@bulk.test`, "ab@bulk.test"},
		{"needless backslash goes, quotes stay", `"a\ b"@bulk.test`, `"a b"@bulk.test`},
		{"quote and backslash stay escaped", `"a\"b\\c"@bulk.test`, `"a\"b\\c"@bulk.test`},
		{"brackets and a parameter in quotes", `<"victim@blocked.example> ENVID=a"@good.example>`,
			`"victim@blocked.example> envid=a"@good.example`},
		{"subaddress is kept", "promo+x@bulk.test", "promo+x@bulk.test"},
		{"dots are kept", "p.r.o@bulk.test", "p.r.o@bulk.test"},

		{"UTF-8 local-part to lower case", "JÖRG@bulk.test", "jörg@bulk.test"},
		{"NFD local-part to NFC", "jo\u0308rg@bulk.test", "jörg@bulk.test"},
		{"accents stay", "rené@bulk.test", "rené@bulk.test"},
		{"no compatibility mapping", "ﬁn@bulk.test", "ﬁn@bulk.test"},
		{"dotted capital I keeps its dot", "İ@bulk.test", "i\u0307@bulk.test"},
		{"the same in two code points", "I\u0307@bulk.test", "i\u0307@bulk.test"},
		{"capital sigma is both small ones", "ΟΔΟΣ@bulk.test", "οδοσ@bulk.test"},
		{"final sigma", "οδος@bulk.test", "οδοσ@bulk.test"},
		{"J with caron composes in lower case only", "J\u030C@bulk.test", "ǰ@bulk.test"},
		{"Kelvin sign is a k", "\u212A@bulk.test", "k@bulk.test"},
		{"Greek question mark is a semicolon and needs quotes", "a\u037Eb@bulk.test", `"a;b"@bulk.test`},
		{"30 combining marks in a row", "q" + strings.Repeat("\u0301", 30) + "@bulk.test", "q" + strings.Repeat("\u0301", 30) + "@bulk.test"},
		{"quotes round UTF-8 go", `"jörg"@bulk.test`, "jörg@bulk.test"},

		{"U-label", "a@bücher.test", "a@xn--bcher-kva.test"},
		{"A-label", "a@xn--bcher-kva.test", "a@xn--bcher-kva.test"},
		{"A-label in capitals", "a@XN--BCHER-KVA.TEST", "a@xn--bcher-kva.test"},
		{"U-label in capitals", "a@BÜCHER.test", "a@xn--bcher-kva.test"},
		{"U-label in NFD", "a@bu\u0308cher.test", "a@xn--bcher-kva.test"},
		{"non-transitional sharp s", "a@faß.test", "a@xn--fa-hia.test"},
		{"emoji are what UTS 46 calls valid", "a@💩.la", "a@xn--ls8h.la"},
		{"emoji as A-label", "a@xn--i-7iq.ws", "a@xn--i-7iq.ws"},
		{"A-label of a newer Unicode", "x@xn--b39h.ws", "x@xn--b39h.ws"},
		{"the same in full-width letters", "x@\uff58\uff4e--b39h.ws", "x@xn--b39h.ws"},
		{"the same with a full-width capital", "x@xn--b39\uff28.ws", "x@xn--b39h.ws"},
		{"the same with full-width hyphens", "x@xn\uff0d\uff0db39h.ws", "x@xn--b39h.ws"},
		{"A-label that is not Punycode", "a@XN--zzzzzzz99999.test", "a@xn--zzzzzzz99999.test"},
		{"A-label that is not Punycode, in front", "x@a.xn--zz.ok.test", "x@a.xn--zz.ok.test"},
		{"A-label of an ASCII character", "x@xn--1-zmc.test", "x@xn--1-zmc.test"},
		{"A-label of ASCII", "a@xn--bulk-.test", "a@xn--bulk-.test"},
		{"A-label of a capital", "a@xn--bcher-noa.test", "a@xn--bcher-noa.test"},
		{"A-label of a soft hyphen", "a@xn--bulk-jva.test", "a@xn--bulk-jva.test"},
		{"A-label beside a U-label", "a@xn--zz.bücher.test", "a@xn--zz.xn--bcher-kva.test"},
		{"xn-- alone", "a@xn--.test", "a@xn--.test"},
		{"xn-- alone, last", "a@bulk.xn--", "a@bulk.xn--"},
		{"full-width letters", "a@ｂｕｌｋ.test", "a@bulk.test"},
		{"full-width digits", "a@ｂ１.test", "a@b1.test"},
		{"full-width letter in an A-label", "a@xn--bcher-kv\uFF41.test", "a@xn--bcher-kva.test"},
		{"full-width hyphen in an A-label", "a@xn--bcher\uFF0Dkva.test", "a@xn--bcher-kva.test"},
		{"full-width letter in the prefix", "a@\uFF58n--bcher-kva.test", "a@xn--bcher-kva.test"},
		{"ideographic full stop", "a@bulk\u3002test", "a@bulk.test"},
		{"full-width full stop", "a@bulk\uFF0Etest", "a@bulk.test"},
		{"half-width ideographic full stop", "a@bulk\uFF61test", "a@bulk.test"},
		{"joiner with its context", "a@क्\u200Dष.test", "a@xn--11b2ezcw70k.test"},
		{"right-to-left label", "a@אבג.test", "a@xn--4dbcd.test"},
		{"digits first beside a right-to-left label", "a@1x.אבג.test", "a@1x.xn--4dbcd.test"},
		{"hyphens in third and fourth place", "a@r2---cdn.test", "a@r2---cdn.test"},
		{"the same beside an A-label", "a@r2---cdn.bücher.test", "a@r2---cdn.xn--bcher-kva.test"},
		{"hyphen last in a label", "a@shop-.test", "a@shop-.test"},
		{"hyphen first in a label", "a@-shop.test", "a@-shop.test"},
		{"hyphens first in labels", "a@--a.-b-.test", "a@--a.-b-.test"},
		{"hyphen first in an A-label", "a@xn----eha.test", "a@xn----eha.test"},
		{"hyphens in third and fourth place, no xn", "a@ab--x.test", "a@ab--x.test"},
		{"underscore", "a@_dmarc.a_b.test", "a@_dmarc.a_b.test"},
		{"underscore beside a U-label", "a@a_b.bücher.test", "a@a_b.xn--bcher-kva.test"},
		{"digits in front of a name", "a@1.2.3.test", "a@1.2.3.test"},

		{"IPv4 literal", "promo@[198.51.100.23]", "promo@[198.51.100.23]"},
		{"IPv6 literal", "promo@[IPv6:2001:DB8:5:0:0:0:0:7]", "promo@[ipv6:2001:db8:5::7]"},
		{"canonical IPv6 literal", "promo@[ipv6:2001:db8:5::7]", "promo@[ipv6:2001:db8:5::7]"},
		{"v4-mapped literal is the IPv4 one", "promo@[IPv6:::ffff:198.51.100.23]", "promo@[198.51.100.23]"},
		{"v4-mapped literal in hexadecimal", "promo@[IPv6:::FFFF:c633:6417]", "promo@[198.51.100.23]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := testkit.Value(Parse(tt.in))(t)
			testkit.MustEqual(t, fmt.Sprintf("Parse(%q)", tt.in), a.String(), tt.want)
			testkit.Equal(t, fmt.Sprintf("Parse(%q)", tt.want), testkit.Value(Parse(tt.want))(t), a)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("x", 64)
	tests := []struct {
		name, in string
		want     Class
	}{
		{"two unquoted @", "a@b@bulk.test", Syntax},
		{"nothing before the @", "@bulk.test", Syntax},
		{"nothing behind the @", "promo@", Syntax},
		{"empty label", "a@bulk..test", Syntax},
		{"leading dot in the domain", "a@.bulk.test", Syntax},
		{"two trailing dots", "a@bulk.test..", Syntax},
		{"two trailing dots, one ideographic", "a@bulk.test\u3002.", Syntax},
		{"two trailing ideographic dots", "a@bulk.test\u3002\u3002", Syntax},
		{"only a dot for a domain", "a@.", Syntax},
		{"trailing dot without a domain", "root.", Syntax},
		{"two dots without a domain", "bulk..test", Syntax},
		{"label of hyphens alone", "a@--.bulk.test", Syntax},
		{"label of one hyphen", "a@-", Syntax},
		{"last label of digits", "a@bulk.123", Syntax},
		{"bare IPv4 address", "a@198.51.100.23", Syntax},
		{"IPv4 address in hexadecimal", "a@0xc6.0x33.0x64.0x17", Syntax},
		{"IPv4 address in full-width digits", "a@１.２.３.４", Syntax},
		{"blank in the local-part", "a b@bulk.test", Syntax},
		{"blank in front", " a@bulk.test", Syntax},
		{"blank behind", "a@bulk.test ", Syntax},
		{"two addresses", "a@bulk.test,b@bulk.test", Syntax},
		{"open bracket only", "<a@bulk.test", Syntax},
		{"closing bracket only", "a@bulk.test>", Syntax},
		{"brackets twice", "<<a@bulk.test>>", Syntax},
		{"blank in brackets", "< >", Syntax},
		{"unclosed quote", `"a@bulk.test`, Syntax},
		{"quote in the middle", `a"b"@bulk.test`, Syntax},
		{"quoted and unquoted parts", `"a".b@bulk.test`, Syntax},
		{"tab in quotes", "\"a\tb\"@bulk.test", Syntax},
		{"backslash before UTF-8", `"\é"@bulk.test`, Syntax},
		{"backslash at the end", `"a\`, Syntax},
		{"display name", "Win Big <promo@bulk.test>", Syntax},
		{"comment", "promo@bulk.test (Win)", Syntax},
		{"route without a mailbox", "@relay.test:", Syntax},
		{"route before a bare local-part", "<@relay.test:promo>", Syntax},
		{"route literal that holds a bracket and an address", "<@[v@blocked.example> X]:a@bulk.test>", Syntax},
		{"route with a stray comma", "<@a.test,:promo@bulk.test>", Syntax},
		{"star in the domain", "a@*.bulk.test", Syntax},
		{"full-width @", "promo\uFF20bulk.test", Syntax},
		{"full-width @ in the domain", "promo@a\uFF20bulk.test", Syntax},
		{"literal without IPv6 tag", "a@[2001:db8:5::7]", Syntax},
		{"IPv4 literal with IPv6 tag", "a@[IPv6:198.51.100.23]", Syntax},
		{"literal with a zone", "a@[IPv6:fe80::1%eth0]", Syntax},
		{"literal with leading zeros", "a@[198.051.100.23]", Syntax},
		{"literal of a name", "a@[bulk.test]", Syntax},
		{"literal without an end", "a@[198.51.100.23", Syntax},
		{"empty literal", "a@[]", Syntax},
		{"literal with a trailing dot", "a@[198.51.100.23].", Syntax},
		{"literal with a domain behind", "a@[198.51.100.23].test", Syntax},

		{"31 combining marks in a row, which NFC breaks up", "q" + strings.Repeat("\u0301", 31) + "@bulk.test", Syntax},
		{"31 combining marks in quotes", "\"q " + strings.Repeat("\u0301", 31) + "\"@bulk.test", Syntax},
		{"31 combining marks in a label", "a@q" + strings.Repeat("\u0301", 31) + ".test", IDNA},
		{"canonical form over the limit", "a@" + strings.Repeat("ü.", 2700) + "x", TooLong},

		{"NUL", "a\x00@bulk.test", NUL},
		{"NUL in quotes", "\"a\x00b\"@bulk.test", NUL},
		{"NUL in the domain", "a@bulk\x00.test", NUL},
		{"control", "a\x07@bulk.test", Control},
		{"CR", "a@bulk.test\r", Control},
		{"LF in quotes", "\"a\nb\"@bulk.test", Control},
		{"DEL", "a\x7F@bulk.test", Control},
		{"C1 control", "a\u0085@bulk.test", Control},
		{"Latin-1", "j\xF6rg@bulk.test", BadUTF8},
		{"Latin-1 in the domain", "a@b\xFCcher.test", BadUTF8},
		{"Latin-1 in the route", "<@b\xFCcher.test:a@bulk.test>", BadUTF8},
		{"overlong @", "a\xC1\x80bulk.test", BadUTF8},
		{"surrogate", "a\xED\xA0\x80@bulk.test", BadUTF8},

		{"soft hyphen in the domain", "a@bu\u00ADlk.test", Invisible},
		{"zero-width space in the domain", "a@bu\u200Blk.test", Invisible},
		{"BOM in the domain", "a@\uFEFFbulk.test", Invisible},
		{"variation selector in the domain", "a@☃\uFE0F.test", Invisible},
		{"combining grapheme joiner", "a@a\u034Fb.test", Invisible},
		{"zero-width space in the local-part", "pro\u200Bmo@bulk.test", Invisible},
		{"joiner in the local-part", "क्\u200Dष@bulk.test", Invisible},
		{"bidi override", "a\u202Eb@bulk.test", Invisible},
		{"line separator", "a\u2028b@bulk.test", Invisible},
		{"no-break space", "a\u00A0b@bulk.test", Invisible},
		{"ideographic space in quotes", "\"a\u3000b\"@bulk.test", Invisible},
		{"tag character", "a\U000E0041@bulk.test", Invisible},
		{"Hangul filler", "a\u3164@bulk.test", Invisible},

		{"xn-- alone in full width", "a@\uFF58n--.test", IDNA},
		{"joiner without context", "a@b\u200Dc.test", IDNA},
		{"leading combining mark", "a@\u0308bulk.test", IDNA},
		{"bidi violation in a label", "a@aא.test", IDNA},
		{"character that UTS 46 forbids", "a@b\u2490c.test", IDNA},
		{"unassigned character", "a@b\u0378c.test", IDNA},
		{"one dot leader is no separator", "a@bulk\u2024test", IDNA},

		{"label of 64", "a@" + long + ".test", LabelTooLong},
		{"U-label of 64 in A-form", "a@" + strings.Repeat("ü", 60) + ".test", LabelTooLong},
		{"A-label of 64", "a@xn--" + strings.Repeat("x", 60) + ".test", LabelTooLong},
		{"U-label that would keep the encoder busy", "a@" + strings.Repeat("üä", 1500), LabelTooLong},
		{"text without end", strings.Repeat("a", 8193), TooLong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := Parse(tt.in)
			var e *Error
			if !errors.As(err, &e) || e.Class != tt.want || a != (Addr{}) {
				t.Fatalf("Parse(%.80q) = %q, %v, want class %s", tt.in, a, err, tt.want)
			}
			if len(e.Input) > 320 || !strings.HasPrefix(tt.in, e.Input) || e.Reason == "" {
				t.Errorf("Parse(%.80q): error with input %.80q, reason %q", tt.in, e.Input, e.Reason)
			}
		})
	}
}

func TestErrorQuotesItsInput(t *testing.T) {
	_, err := Parse("a b@bulk.test")
	if got, want := err.Error(), `"a b@bulk.test": more text than one address`; got != want {
		t.Errorf("Parse error: %s, want %s", got, want)
	}
}

func TestRealSenders(t *testing.T) {
	for name, want := range map[string]int{"ham-senders.txt": 729, "spam-senders.txt": 940} {
		senders := 0
		for line := range strings.Lines(string(testkit.Read(t, testkit.Shared(t, "lists/"+name)))) {
			senders++
			line = strings.TrimSuffix(line, "\n")
			a, err := Parse(line)
			testkit.Should(t, err)
			checkKeys(t, a)
			checkPath(t, []byte("<"+line+">"))
		}
		testkit.Equal(t, fmt.Sprintf("%s: senders", name), senders, want)
	}
}

func TestAllocations(t *testing.T) {
	tests := []struct {
		name, in string
		want     float64
	}{
		{"canonical address", "promo@mail.bulk.test", 0},
		{"canonical address in brackets", "<promo@mail.bulk.test>", 0},
		{"source route", "<@relay.test:promo@mail.bulk.test>", 0},
		{"trailing dot", "promo@mail.bulk.test.", 0},
		{"null", "<>", 0},
		{"capitals", "Promo@Mail.Bulk.TEST", 1},
	}
	dst := make([]Key, 0, MaxKeys)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := testing.AllocsPerRun(100, func() {
				a := testkit.Value(Parse(tt.in))(t)
				dst = a.Keys(dst[:0])
			})
			testkit.Equal(t, fmt.Sprintf("Parse(%q) and Keys: allocations", tt.in), got, tt.want)
		})
	}
	path := []byte(`<@relay.test:"Odd One"@Mail.Bulk.TEST> SIZE=1`)
	if got := testing.AllocsPerRun(100, func() {
		if _, _, err := ParsePath(path); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("ParsePath(%q): %v allocations, want 0", path, got)
	}
	domain := "mail.bulk.test"
	if got := testing.AllocsPerRun(100, func() {
		if _, err := DomainKey(domain); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("DomainKey(%q): %v allocations, want 0", domain, got)
	}
}

// BenchmarkParse parses senders of different forms, whose dots a processor cannot learn
// by heart, and makes their keys.
func BenchmarkParse(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	senders := make([]string, 1<<16)
	for i := range senders {
		part := func() string { return strings.Repeat("ne", 1+rng.IntN(4)) + "lk"[:rng.IntN(3)] }
		senders[i] = fmt.Sprintf("%s.%s%d@%s-%s.%s", part(), part(), rng.IntN(1e5), part(), part(),
			[]string{"com", "example", "info", "net", "de"}[rng.IntN(5)])
	}
	dst := make([]Key, 0, MaxKeys)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		a, err := Parse(senders[i&(1<<16-1)])
		if err != nil {
			b.Fatal(err)
		}
		dst = a.Keys(dst[:0])
	}
}
