package addr

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"blockd/internal/testkit/race"
)

// checkSender is what acceptance means: the canonical form is its own canonical
// form, stays so in brackets and in capitals, and lists find it.
func checkSender(t *testing.T, text string) {
	t.Helper()
	a, err := Parse(text)
	if err != nil {
		if a != (Addr{}) {
			t.Fatalf("Parse(%.200q) = %.200q with error %v", text, a, err)
		}
		return
	}
	s := a.String()
	for _, spelling := range []string{s, "<" + s + ">"} {
		if again, err := Parse(spelling); err != nil || again != a {
			t.Fatalf("Parse(%.200q) = %.200q, but Parse(%.200q) = %.200q, %v", text, s, spelling, again, err)
		}
	}
	if a.at > 0 {
		if joined := a.Local() + "@" + a.Domain(); joined != s {
			t.Fatalf("Parse(%.200q): parts give %.200q, not %.200q", text, joined, s)
		}
		if strings.ContainsFunc(a.Domain(), func(r rune) bool { return r > 127 || unicode.IsUpper(r) }) {
			t.Fatalf("Parse(%.200q): domain %.200q is not in A-form", text, a.Domain())
		}
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		t.Fatalf("Parse(%.200q) = %.200q", text, s)
	}
	checkKeys(t, a)
	// An A-label must encode to itself again, so a name in ASCII has no other
	// canonical form than itself in lower case.
	if _, domain, ok := strings.Cut(text, "@"); ok && !strings.ContainsAny(text, `"[<:`) && isASCII(domain) {
		if want := strings.ToLower(strings.TrimSuffix(domain, ".")); a.Domain() != want {
			t.Fatalf("Parse(%.200q): domain %.200q, want %.200q", text, a.Domain(), want)
		}
	}
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "<>", "root", "Promo@Bulk.TEST.", `"odd \one"@bulk.test`, "<@relay.test:promo@bulk.test>",
		"JÖRG@BÜCHER.test", "a@xn--bcher-kva.test", "a@[IPv6:2001:DB8::7]", "a@1x.אבג.test", "İΣ@bulk\u3002test\u3002",
		"a\u037Eb@bulk.test", "a@xn--.test", "a@0x1",
	} {
		f.Add(s)
	}
	f.Fuzz(checkSender)
}

// TestLongTextsAreStable holds the shapes whose canonical form or cost grows
// fastest with their length, at the longest that Parse looks at.
func TestLongTextsAreStable(t *testing.T) {
	var distinct strings.Builder // code points all different: the encoder's worst case
	for r := rune(0x4E00); distinct.Len() < 8000; r++ {
		distinct.WriteRune(r)
		if r%330 == 0 {
			distinct.WriteByte('.')
		}
	}
	for name, text := range map[string]string{
		"short U-labels": "a@" + strings.Repeat("ü.", 2700) + "x",
		"short U-labels, canonical form of the limit":  "a@" + strings.Repeat("ü.", 818) + "xx",
		"short U-labels, one octet more":               "a@" + strings.Repeat("ü.", 818) + "xxxx",
		"long U-labels":                                "a@" + strings.Repeat(strings.Repeat("üäö", 166)+".", 8) + "x",
		"distinct code points":                         "a@" + distinct.String() + "x",
		"A-labels":                                     "a@" + strings.Repeat("xn--bcher-kva.", 580) + "x",
		"combining marks":                              "a" + strings.Repeat("\u0301", 4000) + "@x",
		"combining marks in a label":                   "a@a" + strings.Repeat("\u0301\u0323", 200) + ".x",
		"characters that NFC makes three times longer": strings.Repeat("\U0001D160", 2000) + "@x",
		"quoted pairs":                                 `"` + strings.Repeat(`\"`, 4000) + `"@x`,
		"source route":                                 strings.Repeat("@a,", 2700) + "@a:b@c",
		"plain, of the limit":                          strings.Repeat("a", 8188) + "@b",
	} {
		t.Run(name, func(t *testing.T) {
			checkSender(t, text)
			checkPath(t, []byte("<"+text+">"))
		})
	}
}

// TestRandomSenders joins pieces that have a meaning, which reaches deeper than
// random octets in the same time.
func TestRandomSenders(t *testing.T) {
	race.Skip(t)
	pieces := []string{
		"a", "B", "7", ".", "@", "-", "_", `"`, `\`, " ", "<", ">", "[", "]", ":", ",", "xn--", "0x", "ipv6:", "198.51.100.23",
		"::1", "@[", "]:", "@[192.0.2.1]:", "\n", "é", "E\u0301", "ß", "Σ", "İ", "א", "\u3002", "\uFF0E", "\u200D", "\u00AD", "\u0308", "💩", "ｘ", "ｎ", "－", "\u037E",
		"\u0338", strings.Repeat("\u0301", 31), "=", "xn--bcher-kva", ".test", "@bulk.test", "\x00", "\xFF",
	}
	rng := rand.New(rand.NewPCG(2, 3))
	for range 100_000 {
		var b strings.Builder
		for range 1 + rng.IntN(8) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		checkSender(t, b.String())
		checkSender(t, "a@"+b.String())
		checkSender(t, b.String()+"@bulk.test")
		checkPath(t, []byte("<"+b.String()+">"))
		checkPath(t, []byte(`<"`+b.String()+`"@bulk.test> SIZE=1`))
		checkPath(t, []byte("<a@"+b.String()+">"))
	}
}

// everyRune calls f with each character of the planes that have characters.
func everyRune(f func(r rune)) {
	for r := rune(0x80); r < 0xE0200; r++ {
		if r == 0x33480 {
			r = 0xE0000 // nothing assigned between
		}
		if !utf8.ValidRune(r) {
			continue
		}
		f(r)
	}
}

func TestEveryCharacterIsStable(t *testing.T) {
	race.Skip(t)
	if testing.Short() {
		t.Skip("210,000 characters take seconds under -race")
	}
	everyRune(func(r rune) {
		checkSender(t, "a"+string(r)+"b@bulk.test")
		checkSender(t, `"`+string(r)+`"@bulk.test`)
		checkSender(t, "a@b"+string(r)+"c.test")
		checkSender(t, "a@"+string(r))
	})
}

// The next three say which behaviour of x/net/idna the code around it stands for.

func TestIDNADropsOnlyWhatIsRefusedBefore(t *testing.T) {
	dropped := 0
	everyRune(func(r rune) {
		got, err := profile.ToASCII("a" + string(r) + "b")
		if err != nil || got != "ab" {
			return
		}
		dropped++
		if k, err := DomainKey("a" + string(r) + "b.test"); err == nil || !invisible(r) {
			t.Errorf("%U: the library drops it, DomainKey gives %v", r, k)
		}
	})
	if dropped < 100 {
		t.Errorf("the library dropped %d characters; it used to drop the variation selectors at least", dropped)
	}
}

func TestIDNATakesALabelAway(t *testing.T) {
	got, err := profile.ToASCII("xn--.test")
	if got != ".test" {
		t.Errorf("ToASCII(xn--.test) = %q, %v: the check in mapLabel was for .test", got, err)
	}
	if k, err := DomainKey("\uFF58n--.test"); err == nil {
		t.Errorf("DomainKey(xn--.test in full width) = %v", k)
	}
}

func TestLabelTooLongForTheEncoderIsNotEncoded(t *testing.T) {
	label := strings.Repeat("üä", maxULabel/4+1)
	if got := testing.AllocsPerRun(10, func() {
		if _, f := mapLabel(label); f.class != LabelTooLong {
			t.Fatalf("mapLabel of %d octets: %v", len(label), f)
		}
	}); got != 0 {
		t.Errorf("mapLabel of %d octets: %v allocations, so the library has seen it", len(label), got)
	}
}

func TestIDNARefusesRealNames(t *testing.T) {
	for _, name := range []string{"ab--x.test", "r2---cdn.test", "shop-.test", "a_b.test"} {
		if got, err := idna.Lookup.ToASCII(name); err == nil {
			t.Errorf("idna.Lookup takes %q as %q: the bypass may have lost its reason", name, got)
		}
		if k, err := DomainKey(name); err != nil || k.Text != name {
			t.Errorf("DomainKey(%q) = %v, %v", name, k, err)
		}
	}
}
