package verdict_test

import (
	"strings"
	"testing"

	"blockd/policy/verdict"
)

func TestParseProofs(t *testing.T) {
	p, err := verdict.ParseProofs([]string{"dkim", "client", "spf", "auth"})
	if err != nil || p.String() != "client, auth, spf, dkim" {
		t.Errorf("%q, %v", p, err)
	}
	for _, word := range []string{"alignment", "SPF", "", "helo"} {
		if _, err := verdict.ParseProofs([]string{word}); err == nil || !strings.Contains(err.Error(), `"`+word+`"`) {
			t.Errorf("ParseProofs(%q): %v", word, err)
		}
	}
}

func TestParseSources(t *testing.T) {
	if _, err := verdict.ParseSources([]string{"envelope", "sender"}); err == nil || !strings.Contains(err.Error(), `have "sender"`) {
		t.Errorf("an unknown word: %v", err)
	}
	for _, tt := range []struct {
		words            []string
		envelope, header bool
	}{
		{nil, true, false}, {[]string{"envelope"}, true, false}, {[]string{"from"}, false, true},
		{[]string{"Envelope", "Return-Path"}, true, true},
	} {
		s, err := verdict.ParseSources(tt.words)
		if err != nil || s.Envelope() != tt.envelope || s.Header() != tt.header {
			t.Errorf("%q: envelope %v, header %v, %v", tt.words, s.Envelope(), s.Header(), err)
		}
	}
}
