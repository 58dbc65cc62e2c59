package msgauth

import (
	"context"
	"net/netip"

	"github.com/miekg/dns"
)

// maxReverse is how many names of one address are followed, as SPF does for "ptr" (RFC
// 7208, section 4.6.4).
const maxReverse = 10

// Reverse says whether a client's address has a name in DNS: a PTR record (RFC 1035,
// section 3.5). With confirm one of the names must lead back to the address, the check
// that RFC 8601, section 2.7.3, calls iprev. Unknown: DNS did not tell, or the address is
// not known.
func (r *Resolver) Reverse(ctx context.Context, client netip.Addr, confirm bool) State {
	client = client.WithZone("").Unmap()
	name, err := dns.ReverseAddr(client.String())
	if err != nil {
		return Unknown
	}
	ctx, cancel := r.budget(ctx)
	defer cancel()
	network := networkOf(client)
	names := r.lookup(ctx, network, name, dns.TypePTR)
	switch {
	case names.outcome == none:
		return No
	case names.outcome != records:
		return Unknown
	case !confirm:
		return Pass
	}
	kind := dns.TypeA
	if client.Is6() {
		kind = dns.TypeAAAA
	}
	state := No
	for _, host := range names.records[:min(len(names.records), maxReverse)] {
		back := r.lookup(ctx, network, host.text, kind)
		for _, rec := range back.records {
			if a, err := netip.ParseAddr(rec.text); err == nil && a.Unmap() == client {
				return Pass
			}
		}
		if back.outcome == failed || back.outcome == refused {
			state = Unknown
		}
	}
	return state
}
