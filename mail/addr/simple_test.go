package addr

import (
	"math/rand/v2"
	"strings"
	"testing"

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
