package msgauth

import (
	"net/netip"
	"testing"

	"blockd/internal/testkit/nameserver"
)

// A policy is that of the domain, or of the one that was registered for it; several are none, as other records are, and what
// DNS does not tell is none.
func TestHasDMARC(t *testing.T) {
	s := nameserver.Serve(t, zone{
		"TXT _dmarc.plain.example":       {"v=DMARC1; p=none"},
		"TXT _dmarc.blanks.example":      {"v = DMARC1 ;p=reject"},
		"TXT _dmarc.beside.example":      {"google-site-verification=x", "v=DMARC1; p=quarantine"},
		"TXT _dmarc.twice.example":       {"v=DMARC1; p=none", "v=DMARC1; p=reject"},
		"TXT _dmarc.other.example":       {"v=DMARC2; p=none", "v=spf1 -all", "DMARC1", "p=none; v=DMARC1"},
		"TXT _dmarc.own.plain.example":   {"v=DMARC1; p=reject"},
		"TXT _dmarc.twice.plain.example": {"v=DMARC1; p=none", "v=DMARC1; p=none"},
		"TXT _dmarc.a.b.other.example":   {"v=DMARC1; p=reject"},
		"TXT _dmarc.broken.example":      {"!SERVFAIL"},
	})
	r := resolverOf(t, s)
	for domain, want := range map[string]bool{
		"plain.example": true, "PLAIN.example": true, "deep.below.plain.example": true, "own.plain.example": true, "blanks.example": true, "beside.example": true,
		"twice.example": false, "twice.plain.example": false, "other.example": false, "a.b.other.example": true, "b.other.example": false,
		"none.example": false, "broken.example": false, "example": false, "co.uk": false, "": false, "[192.0.2.1]": false,
	} {
		if got := r.HasDMARC(t.Context(), netip.Addr{}, domain); got != want {
			t.Errorf("%q: %v, want %v", domain, got, want)
		}
	}
}
