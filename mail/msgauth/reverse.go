package msgauth

import (
	"context"
	"net/netip"

	"github.com/miekg/dns"
)

// maxReverse is how many names of one address are followed.
const maxReverse = 100

// Reverse says whether a client's address has a name in DNS: a PTR record (RFC 1035,
// section 3.5). With confirm one of the names must lead back to the address, the check
// that RFC 8601, section 2.7.3, calls iprev. Unknown: DNS did not tell, or the address is
// not known. Short: there was no room to ask, or there are more names than are followed.
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
		return names.state()
	case !confirm:
		return Pass
	}
	kind := dns.TypeA
	if client.Is6() {
		kind = dns.TypeAAAA
	}
	state := No
	if len(names.records) > maxReverse {
		state = Short
	}
	for _, host := range names.records[:min(len(names.records), maxReverse)] {
		back := r.lookup(ctx, network, host.text, kind)
		for _, rec := range back.records {
			if a, err := netip.ParseAddr(rec.text); err == nil && a.Unmap() == client {
				return Pass
			}
		}
		state = state.or(back.state())
	}
	return state
}

// state is what an answer without the record that was looked for leaves of a proof.
func (a *answer) state() State {
	switch a.outcome {
	case failed:
		return Unknown
	case beyond, short:
		return Short
	}
	return No
}
