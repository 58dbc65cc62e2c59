package msgauth

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"

	"github.com/emersion/go-msgauth/authres"
)

func TestResults(t *testing.T) {
	f := SPF{Proof: Pass, Result: "pass", Domain: "x.example"}
	m := &Message{Author: "x.example", Signatures: []Signature{
		{Domain: "x.example", Selector: "s1", Algorithm: "rsa-sha256", Proof: Pass},
		{Domain: "y.example", Selector: "s2", Algorithm: "rsa-sha256", Proof: Unknown},
		{Selector: "s3; dkim=pass header.d=bank.example", Proof: No},
	}}
	const want = "mx.here.example;\r\n\tspf=pass smtp.mailfrom=a@x.example;\r\n" +
		"\tdkim=pass header.d=x.example header.s=s1 header.a=rsa-sha256;\r\n" +
		"\tdkim=temperror header.d=y.example header.s=s2 header.a=rsa-sha256;\r\n" +
		"\tdkim=fail header.s=\"s3; dkim=pass header.d=bank.example\""
	testkit.Equal(t, "Results", Results("mx.here.example", f, "a@x.example", m), want)
	testkit.Equal(t, "Results of nothing", Results("mx.here.example", SPF{}, "a@x.example", nil), "mx.here.example; none")
	odd := `"x; dkim=pass header.d=bank.example"@x.example`
	if got := Results("id", f, odd, nil); got != "id;\r\n\tspf=pass smtp.mailfrom=\"\\\"x; dkim=pass header.d=bank.example\\\"@x.example\"" {
		t.Errorf("Results = %q", got)
	}
	if got := Results("id", f, "a\r\nX: y@x.example", nil); strings.Count(got, "\r\n") != 1 {
		t.Errorf("a sender adds a field: %q", got)
	}
}

func TestClaims(t *testing.T) {
	const id = "mx.here.example"
	for _, tt := range []struct {
		name, value string
		want        bool
	}{
		{"plainly", " mx.here.example; dkim=pass", true},
		{"in capitals", " MX.Here.Example; dkim=pass", true},
		{"with a version", " mx.here.example 1; dkim=pass", true},
		{"in quotes", ` "mx.here.example"; dkim=pass`, true},
		{"in quotes with an escape", ` "mx\.here.example"; dkim=pass`, true},
		{"half in quotes", ` mx."here".example; dkim=pass`, true},
		{"behind a comment", " (a; b) mx.here.example; dkim=pass", true},
		{"before a comment", " mx.here.example(a); dkim=pass", true},
		{"around a comment", " mx.(a)here.example; dkim=pass", true},
		{"folded", "\r\n\tmx.here\r\n .example; dkim=pass", true},
		{"with the root's dot", " mx.here.example.; dkim=pass", true},
		{"without a result", " mx.here.example", true},
		{"an open quote", ` "mx.here.example; dkim=pass`, true},
		{"an open comment", " (mx.here.example; dkim=pass", true},
		{"a NUL", " mx.here.example\x00; dkim=pass", true},
		{"an escape", ` mx\.here.example; dkim=pass`, true},
		{"nobody's", " ; dkim=pass", true},
		{"empty", "", true},
		{"a comment alone", " (x)", true},

		{"another host", " mx.there.example; dkim=pass", false},
		{"a longer name", " mx.here.example.org; dkim=pass", false},
		{"a shorter name", " here.example; dkim=pass", false},
		{"the name behind another", " mx.there.example; dkim=pass header.d=mx.here.example", false},
		{"the name in a comment", " mx.there.example (mx.here.example); dkim=pass", false},
		{"without any name, as one large site writes", " spf=pass (sender IP is 192.0.2.1) smtp.mailfrom=x.example; dkim=pass", false},
	} {
		testkit.Equal(t, fmt.Sprintf("%s: Claims(%q)", tt.name, tt.value), Claims(tt.value, id), tt.want)
	}
	for _, spelling := range []string{"bücher.example", "BÜCHER.example", "xn--bcher-kva.example"} {
		if !Claims(spelling+"; none", "xn--bcher-kva.example") || !Claims(spelling+"; none", "bücher.example") {
			t.Errorf("%s is not seen to be the same name", spelling)
		}
	}
}

// FuzzResults has any text of a sender: what is written has one field, claims to be
// ours, and is read as one result.
func FuzzResults(f *testing.F) {
	f.Add("a@x.example", "s1")
	f.Add(`"x; dkim=pass header.d=bank.example"@evil.example`, "s (c)")
	f.Add("a\r\n@x", `\"`)
	f.Fuzz(func(t *testing.T, sender, selector string) {
		text := Results("mx.here.example", SPF{Result: "fail"}, sender, &Message{Signatures: []Signature{{Domain: "x.example", Selector: selector}}})
		if rest := strings.ReplaceAll(text, "\r\n\t", ""); strings.ContainsAny(rest, "\r\n\x00") || len(strings.Trim(rest, visibleASCII())) > 0 {
			t.Fatalf("%q", text)
		}
		words, err := scan(text)
		if err != nil || !Claims(text, "mx.here.example") {
			t.Fatalf("%q: %v", text, err)
		}
		ends := 0
		for _, w := range words {
			if w.sign == ';' {
				ends++
			}
			if w.text == "spf=pass" || w.text == "dkim=pass" {
				t.Fatalf("%q has a pass", text)
			}
		}
		if ends != 2 {
			t.Fatalf("%q has %d results, want 2", text, ends)
		}
	})
}

func visibleASCII() string {
	var b strings.Builder
	for c := byte(' '); c <= '~'; c++ {
		b.WriteByte(c)
	}
	return b.String()
}

// FuzzClaims knows what a naive reader takes for ours: whatever it does, so do we.
func FuzzClaims(f *testing.F) {
	for _, seed := range []string{" mx.here.example; dkim=pass", "(x)mx.here.example 1;", `"mx.here.example"`, "mx.there.example;", "mx.here\r\n.example"} {
		f.Add(seed)
	}
	const id = "mx.here.example"
	f.Fuzz(func(t *testing.T, value string) {
		claims := Claims(value, id)
		if name, _, err := authres.Parse(value); err == nil && strings.EqualFold(name, id) && !claims {
			t.Fatalf("Claims(%q) is false, and a naive reader sees us", value)
		}
		if !Claims(" "+id+"; "+value, id) && scanned(value) {
			t.Fatalf("ours with %q behind it is not ours", value)
		}
	})
}

func scanned(value string) bool { _, err := scan(value); return err == nil }
