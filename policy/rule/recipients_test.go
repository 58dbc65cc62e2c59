package rule_test

import (
	"testing"

	"blockd/policy/rule"
)

func TestRecipientKey(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"address", "VIP@Example.ORG", "vip@example.org exact"},
		{"address in brackets", "<vip@example.org>", "vip@example.org exact"},
		{"quoted local-part", `"v.ip"@example.org`, "v.ip@example.org exact"},
		{"local-part", "sales@", "sales@ local"},
		{"name and all below", "Example.org.", "example.org tree"},
		{"name alone", "=example.org", "example.org exact"},
		{"name alone, by its mailboxes", "@example.org", "example.org exact"},
		{"the same with a star", "*@example.org", "example.org exact"},
		{"names below", ".example.org", "example.org sub"},
		{"names below with a star", "*.example.org", "example.org sub"},
		{"names below by their mailboxes", "@.example.org", "example.org sub"},
		{"the same with two stars", "*@*.example.org", "example.org sub"},
		{"address that begins with the mark of a name", "=x@example.org", "=x@example.org exact"},
		{"U-label", "bücher.example", "xn--bcher-kva.example tree"},
		{"literal", "bob@[192.0.2.1]", "bob@[192.0.2.1] exact"},
		{"null", "<>", "error"},
		{"nothing", "", "error"},
		{"a dot", ".", "error"},
		{"everything", "*", "error"},
		{"two addresses", "a@b.example,c@d.example", "error"},
		{"client address", "192.0.2.1", "error"},
		{"exception", "!example.org", "error"},
		{"pattern", "promo*@example.org", "error"},
		{"star in quotes", `"promo*"@example.org`, "promo*@example.org exact"},
		{"address in brackets alone", "[192.0.2.1]", "error"},
		{"senders of an address literal", "@[192.0.2.1]", "[192.0.2.1] exact"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key, scope, err := rule.RecipientKey(tt.text)
			got := key.Text + " " + scope.String()
			if err != nil {
				got = "error"
			}
			if got != tt.want {
				t.Errorf("RecipientKey(%q) = %s (%v), want %s", tt.text, got, err, tt.want)
			}
		})
	}
}
