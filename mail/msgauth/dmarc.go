package msgauth

import (
	"context"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// HasDMARC reports whether a domain, or the one that was registered for it, publishes a DMARC policy (RFC 7489, section 6.6.3). What DNS
// does not tell has none. client is for whom it is asked.
func (r *Resolver) HasDMARC(ctx context.Context, client netip.Addr, domain string) bool {
	ctx, cancel := r.budget(ctx)
	defer cancel()
	domain = canonical(domain)
	org := Organisation(domain)
	if org == "" {
		return false
	}
	for _, name := range []string{domain, org} {
		a := r.lookup(ctx, networkOf(client), "_dmarc."+name, dns.TypeTXT)
		policies := 0
		for _, record := range a.records {
			tag, _, _ := strings.Cut(record.text, ";")
			if name, value, ok := strings.Cut(tag, "="); ok && strings.TrimSpace(name) == "v" && strings.TrimSpace(value) == "DMARC1" {
				policies++
			}
		}
		if policies > 0 || domain == org {
			return policies == 1 // several are none
		}
	}
	return false
}
