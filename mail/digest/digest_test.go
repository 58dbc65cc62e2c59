package digest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/digest"
)

// The digests are those of md5sum, sha1sum, and sha256sum with base32, of "a@b.test".
func TestDigestsAreThoseThatClientsSend(t *testing.T) {
	for _, tt := range []struct {
		algorithm digest.Algorithm
		want      string
	}{
		{digest.MD5, "587aaf4ca8b4a2ee55d8e95eeeaf3c10"},
		{digest.SHA1, "a1788b8152fccd393f40429e70c8cc6ab03f2e10"},
		{digest.SHA256, "3gh3p3kwhvvcoj6s3zq5h3ex3ppxnw6irelkkthpwmxd6vgvgh5a"},
	} {
		d := digest.Of(tt.algorithm, "a@b.test")
		if d.String() != tt.want {
			t.Errorf("%v: %s, want %s", tt.algorithm, d, tt.want)
		}
		for _, text := range []string{tt.want, strings.ToUpper(tt.want)} {
			testkit.Equal(t, fmt.Sprintf("Parse(%q)", text), testkit.Value(digest.Parse(text))(t), d)
		}
	}
	long := fmt.Sprintf("%x", func() []byte { d := digest.Of(digest.SHA256, "a@b.test"); return d.Append(nil) }())
	testkit.Equal(t, fmt.Sprintf("Parse(%q)", long), testkit.Value(digest.Parse(long))(t), digest.Of(digest.SHA256, "a@b.test"))
}

func TestOtherTextsAreNoDigests(t *testing.T) {
	for _, text := range []string{"", "test", "invalid", strings.Repeat("a", 31), strings.Repeat("g", 32), strings.Repeat("ä", 16),
		strings.Repeat("1", 52), strings.Repeat("a", 51) + "b", strings.Repeat("a", 51) + "=", strings.Repeat("\n", 52), strings.Repeat("a", 64_000)} {
		if d, err := digest.Parse(text); !errors.Is(err, digest.ErrText) || d != (digest.Digest{}) {
			t.Errorf("Parse(%.60q) = %v, %v", text, d, err)
		}
	}
}

func TestTexts(t *testing.T) {
	for address, want := range map[string][]string{
		"a@b.test":                   {"a@b.test"},
		"xn--a@b.test":               {"xn--a@b.test"},
		"grüße@xn--bcher-kva.test":   {"grüße@xn--bcher-kva.test", "grüße@bücher.test"},
		`"x@y"@a.xn--bcher-kva.test`: {`"x@y"@a.xn--bcher-kva.test`, `"x@y"@a.bücher.test`},
		"a@[198.51.100.23]":          {"a@[198.51.100.23]"},
		"a@xn--bcher-kva.xn--p1ai":   {"a@xn--bcher-kva.xn--p1ai", "a@bücher.рф"},
	} {
		testkit.EqualSlices(t, fmt.Sprintf("Texts(%q)", address), slices.Collect(digest.Texts(address)), want)
	}
}

func TestNames(t *testing.T) {
	s := digest.Set(0)
	for _, word := range []string{"sha256", "md5"} {
		a, err := digest.Named(word)
		if err != nil || a.String() != word {
			t.Errorf("Named(%q) = %v, %v", word, a, err)
		}
		s |= digest.SetOf(a)
	}
	if s.String() != "md5, sha256" || s.Len() != 2 || s.Has(digest.SHA1) || s.Has(0) {
		t.Errorf("set %v", s)
	}
	for _, word := range []string{"", "sha512", "MD5", "algorithm 0"} {
		if a, err := digest.Named(word); err == nil {
			t.Errorf("Named(%q) = %v", word, a)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, a := range []digest.Algorithm{digest.MD5, digest.SHA1, digest.SHA256} {
		f.Add(digest.Of(a, "a@b.test").String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := digest.Parse(text)
		if err != nil {
			return
		}
		if again, err := digest.Parse(d.String()); err != nil || again != d {
			t.Errorf("Parse(%q) = %v, which reads as %v, %v", text, d, again, err)
		}
	})
}

// The digest of an address costs no memory: a build makes one for each.
func TestDigestsDoNotAllocate(t *testing.T) {
	key := []byte(strings.Repeat("promo", 40) + "@bulk.test")
	text := string(key)
	var d digest.Digest
	for _, a := range []digest.Algorithm{digest.MD5, digest.SHA1, digest.SHA256} {
		if n := testing.AllocsPerRun(100, func() { d = digest.Of(a, key) }) + testing.AllocsPerRun(100, func() { d = digest.Of(a, text) }); n != 0 {
			t.Errorf("%v: %v allocations", a, n)
		}
	}
	_ = d
}
