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
