package addr

import (
	"math/rand/v2"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// checkSimple holds the short ways against the long ones: they may decline, and
// never differ.
func checkSimple(t *testing.T, text string) (taken bool) {
	t.Helper()
	k, ok := Simple(text)
	switch {
	case !ok:
	case k.Kind == Domain:
		if want, err := domainKey(text); err != nil || k != want {
			t.Fatalf("Simple(%q) = %+v, DomainKey %+v, %v", text, k, want, err)
		}
	default:
		a, err := parse(text)
		if want, has := a.Key(); err != nil || !has || k != want {
			t.Fatalf("Simple(%q) = %+v, Parse %q, %v", text, k, a.text, err)
		}
	}
	a, err := Parse(text)
	if want, wantErr := parse(text); a != want || !sameError(err, wantErr) {
		t.Fatalf("Parse(%q) = %+v, %v; the long way %+v, %v", text, a, err, want, wantErr)
	}
	d, err := DomainKey(text)
	if want, wantErr := domainKey(text); d != want || !sameError(err, wantErr) {
		t.Fatalf("DomainKey(%q) = %+v, %v; the long way %+v, %v", text, d, err, want, wantErr)
	}
	return ok
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a.(*Error) == *b.(*Error)
}

func TestSimpleTakesTheUsual(t *testing.T) {
	for _, text := range []string{
		"a", "de", "bulk.test", "r3.sn-a5m.test", "_dmarc.bulk.test", "shop-.test", "163.com", "0.xn-bulk.test", "0x1.test", "a.0xg",
		"promo@bulk.test", "PROMO@Bulk.TEST", "a@b", "first.last_9-x@mail7.bulk.online", "_@x.de", "1@0xyz",
		strings.Repeat("a", 63), strings.Repeat("a.", 31) + "z", strings.Repeat("l", 61) + "@d",
	} {
		if !checkSimple(t, text) {
			t.Errorf("Simple(%q) declines", text)
		}
	}
}

func TestSimpleDeclines(t *testing.T) {
	for _, text := range []string{
		"", ".", "@", "a@", "@b", "a@@b", "a@b@c", ".a", "a.", "a..b", "a.@b", "a@.b", "-a", "a.-b", "a@-b", "xn--bcher-kva.test",
		"a@xn--bcher-kva.test", "1.2.3.4", "a@7", "a.0xdead", "a@0XbEEf", "0x", "a.0x", "a b", "a+b@c", "a\x00b", "bücher.test", "a,b", "a/b", "a:b",
		"[a]", "a`b", "a{b", "`", "/", ":", "[", "{", "<a@b>", "a*", strings.Repeat("a", 64),
	} {
		if checkSimple(t, text) {
			t.Errorf("Simple(%q) takes it", text)
		}
	}
}

// TestSimpleAgreesOctetByOctet puts every octet, and every two of those that
// matter, at every place of texts of every length that is read another way.
func TestSimpleAgreesOctetByOctet(t *testing.T) {
	race.Skip(t)
	for length := 1; length <= 65; length++ {
		for at := range length {
			text := []byte(strings.Repeat("k", length))
			for c := range 256 {
				text[at] = byte(c)
				checkSimple(t, string(text))
			}
			if at+1 < length && (length < 20 || length > 61) {
				for _, c := range "@.-_0xXafgZ\x80/:`[{" {
					for _, d := range "@.-_0xXafgZ\x80/:`[{" {
						text[at], text[at+1] = byte(c), byte(d)
						checkSimple(t, string(text))
					}
				}
			}
		}
	}
}

func TestSimpleAgreesOnRandomTexts(t *testing.T) {
	race.Skip(t)
	rng := rand.New(rand.NewPCG(1, 8))
	taken := 0
	for range 300_000 {
		text := make([]byte, rng.IntN(70))
		for i := range text {
			const often, seldom = "abcdexyz0129AFGXZ", "@.-_@.-_+ =\xc3\xbc'/"
			if text[i] = often[rng.IntN(len(often))]; rng.IntN(5) == 0 {
				text[i] = seldom[rng.IntN(1+rng.IntN(len(seldom)))]
			}
		}
		if checkSimple(t, string(text)) {
			taken++
		}
	}
	if taken < 30_000 {
		t.Errorf("%d texts were taken: the rest shows nothing", taken)
	}
}

func FuzzSimple(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) <= 4096 {
			checkSimple(t, text)
		}
	})
}

func TestReadings(t *testing.T) {
	long := strings.Repeat("a.", 130) // no key is so long
	tests := []struct{ name, text, want string }{
		{"an address", "x@listed.example", "x@listed.example"},
		{"null sender", "", ""},
		{"no domain", "root", ""},
		{"at sign behind it", "x@listed.example@", "x@listed.example"},
		{"several", "<x@listed.example@@>", "x@listed.example"},
		{"at sign behind it, quoted", `"x@listed.example@"@`, "x@listed.example"},
		{"all of it in quotes", `"x@listed.example"`, "x@listed.example"},
		{"percent for an @", "x%listed.example", "x@listed.example"},
		{"two percents", "x%y%listed.example", "x%y@listed.example"},
		{"percent at the end", "x%listed.example%", "x@listed.example"},
		{"percent and an @ behind it", "x%listed.example@", "x@listed.example"},
		{"bang path", "listed.example!x", "x@listed.example"},
		{"bang path and an @ behind it", "listed.example!x@", "x@listed.example"},
		{"bang path in quotes", `"listed.example!x"`, "x@listed.example"},
		{"percent beside an @", "x%listed.example@ok.example", "x%listed.example@ok.example"},
		{"percents at the end", "x%listed.example%%%", "x@listed.example"},
		{"percents alone", "%%%", ""},
		{"percent alone", "%", ""},
		{"bang alone", "!a", ""},
		{"control in the local-part", "\x01x@listed.example", "listed.example"},
		{"in quotes", "\"\x01x\"@listed.example", "listed.example"},
		{"label that is no A-label", "x@xn--zz.listed.example", "x@xn--zz.listed.example"},
		{"label of a hyphen", "x@-.listed.example", "?.listed.example"},
		{"label too long", "x@" + strings.Repeat("a", 64) + ".listed.example", "?.listed.example"},
		{"empty label", "x@a..listed.example", "?.listed.example"},
		{"number within", "x@12.-.34.listed.example", "?.34.listed.example"},
		{"number at the end", "x@listed.example.7", ""},
		{"dots behind it", "x@listed.example..", "listed.example"},
		{"domain of more than 253 octets", "\x01x@" + long + "listed.example", "?." + strings.Repeat("a.", 118) + "listed.example"},
		{"text of more than 8192 octets", strings.Repeat("x", 9000) + "@listed.example", ""},
		{"at sign in quotes", "\"x@listed.example\x01\"@ok.example", "ok.example"},
		{"at sign in quotes, and no domain behind", "\"x@listed.example\x01\"@!", ""},
		{"at sign in quotes that do not end", `"x@listed.example`, "listed.example"},
		{"two domains", "x\x01@listed.example@ok.example", "ok.example"},
		{"last one cannot be read", "x@listed.example@!", "listed.example"},
		{"soft hyphen in the local-part", "pro\u00ADmo@listed.example", "promo@listed.example"},
		{"soft hyphen in the domain", "promo@lis\u00ADted.example", "promo@listed.example"},
		{"zero width around the @", "promo\u200B@\u2060listed.example", "promo@listed.example"},
		{"bidi controls", "\u202Epromo\u202C@\u2066listed.example\u2069", "promo@listed.example"},
		{"variation selector", "promo\uFE0F@listed.example\uFE0F", "promo@listed.example"},
		{"joiner", "pro\u200Dmo@listed\u200C.example", "?.example|promo@listed.example"},
		{"joiner that its domain may hold", "x@نامه\u200Cای.example", "x@xn--mgba3gch31f060k.example"},
		{"one in its local-part too", "x\u200D@نامه\u200Cای.example", "x@xn--mgba3gch31f060k.example"},
		{"the same, and a soft hyphen", "x@نامه\u200Cا\u00ADی.example", "x@xn--mgba3gch31f060k.example"},
		{"joiner in the wrong place of a domain that may hold one", "x@نامه\u200Cای\u200D.example", "?.example|x@xn--mgba3gch31f.example"},
		{"full-width @", "x\uFF20listed.example", "x@listed.example"},
		{"small @", "x\uFE6Blisted.example", "x@listed.example"},
		{"no-break space in the local-part", "x\u00A0y@listed.example", "listed.example"},
		{"no UTF-8 in the local-part", "x\xFFy@listed.example", "listed.example"},
		{"no UTF-8 in a label", "x@\xFF.listed.example", "?.listed.example"},
		{"domain in quotes", `x@"listed.example"`, "listed.example|x@listed.example"},
		{"backslash in the domain", `x@li\sted.example`, "listed.example|x@listed.example"},
		{"literal", "\x01x@[192.0.2.1]", "[192.0.2.1]"},
		{"comment behind it", "x@listed.example(c)", "x@listed.example"},
		{"comment behind a blank", "x@listed.example (a (b) \\) c)", "x@listed.example"},
		{"comments everywhere", "(a)x(b)@(c)listed(d).example(e)", "x@listed.example"},
		{"comment in front of a quoted local-part", `(a)"x y"@listed.example`, `listed.example|"x y"@listed.example`},
		{"parentheses in quotes are none", `"x(y)"@listed.example`, `"x(y)"@listed.example`},
		{"comment without an end", "x@listed.example(c", "x@listed.example"},
		{"name in front", "N <x@listed.example>", "x@listed.example"},
		{"name in quotes", `"N, M" <x@listed.example>`, "x@listed.example"},
		{"name that looks like an address", "y@ok.example <x@listed.example>", "x@listed.example"},
		{"name behind", "<x@listed.example> N", "x@listed.example"},
		{"bracket without an end", "N <x@listed.example", "listed.example|x@listed.example"},
		{"blanks around a dot", "x@listed . example", "x@listed.example"},
		{"blanks around the @", "x @ listed.example", "listed.example|x@listed.example"},
		{"blanks in the local-part's dots", "a . b@listed.example", "listed.example|a.b@listed.example"},
		{"end of a list", "x@listed.example,", "x@listed.example"},
		{"group", "g: x@listed.example;", "x@listed.example"},
		{"comment and percent", "x%listed.example(c)", "x@listed.example"},
		{"nothing at all", "@", ""},
		{"blank", " ", ""},
	}
	for _, tt := range tests {
		var got []string
		for _, r := range Readings(tt.text) {
			got = append(got, r.Addr.String()+r.Domain.Text)
		}
		testkit.Equal(t, tt.name, strings.Join(got, "|"), tt.want)
	}
}

// FuzzReadings: what comes of any text is a canonical address, or a domain none of
// whose names could be listed but those that are canonical. Dropping what shows
// nothing changes no reading of what Parse takes.
func FuzzReadings(f *testing.F) {
	for _, text := range []string{"x@listed.example@", `"x@y"@`, "a!b%c", "x@xn--zz.b.example", "x@نامه\u200Cای.example", "\xFF\uFF20a", `"\"@b`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := Parse(text)
		readings := Readings(text)
		if err == nil && a.Domain() != "" && len(text) <= maxText && (len(readings) != 1 || readings[0].Addr != a) {
			t.Fatalf("Readings(%.200q) = %v, Parse reads %v", text, readings, a)
		}
		for _, r := range readings {
			if (r.Addr == Addr{}) == (r.Domain == Key{}) {
				t.Fatalf("Readings(%.200q) has %v: want an address or a domain", text, r)
			}
			if again, err := Parse(r.Addr.String()); err != nil || again != r.Addr {
				t.Fatalf("Readings(%.200q) has %v, which is not canonical: %v, %v", text, r.Addr, again, err)
			}
			name := strings.TrimPrefix(r.Domain.Text, "?.")
			if r.Domain.Text != "" {
				if k, err := DomainKey(name); err != nil || k.Text != name || len(r.Domain.Text) > maxDomain {
					t.Fatalf("Readings(%.200q) has the domain %q: %v, %v", text, r.Domain.Text, k, err)
				}
			}
		}
	})
}
