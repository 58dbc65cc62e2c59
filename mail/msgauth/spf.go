package msgauth

import (
	"context"
	"net/netip"
	"slices"
	"time"
)

// SPF is what SPF says of a client that sends for a domain.
type SPF struct {
	Proof  State
	Result string // a word of RFC 7208, section 8; "" where none was asked for
	Domain string // of MAIL FROM, canonical
	Reason string // the mechanism that matched, or why Proof is not Pass
}

// SPF checks whether client may send for sender, in canonical form without angle
// brackets. helo is for macros only: a sender without a domain is not checked, and
// neither is a client that is a relay of ours, whose own address says nothing about
// where the mail came from.
//
// Beside the rules of RFC 7208, a pass proves nothing for a public suffix, and
// nothing where the record lets everybody pass: by "all", or because it also passes
// an address that nobody has.
func (r *Resolver) SPF(ctx context.Context, client netip.Addr, helo, sender string) SPF {
	client = client.WithZone("").Unmap()
	local, domain, _ := cutLast(sender, '@')
	f := SPF{Domain: canonical(domain)}
	switch {
	case !client.IsValid():
		f.Reason = "the client's address is not known"
	case slices.ContainsFunc(r.settings.TrustedRelays, func(p netip.Prefix) bool { return p.Contains(client) }):
		f.Reason = "the client is a trusted relay"
	case f.Domain == "" || local == "":
		f.Reason = "no domain that SPF could be about"
	case Organisation(f.Domain) == "":
		f.Reason = "a public suffix, or no registered domain"
	default:
		r.check(ctx, &f, client, helo, local)
	}
	return f
}

// check asks whether client passes, and then, in a time of its own, whether everybody does: what the first question has
// left of its time is nobody's fault.
func (r *Resolver) check(ctx context.Context, f *SPF, client netip.Addr, helo, local string) {
	network := networkOf(client) // whose places both questions take: all invented clients have one network
	ask := func(client netip.Addr, timeout time.Duration) (result, reason string, isShort bool) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		budget, done := r.budget(ctx)
		defer done()
		c := spfCheck{ctx: budget, r: r, network: network, client: client, helo: helo, local: local, domain: f.Domain}
		result, reason = c.host(f.Domain)
		return result, reason, c.short
	}
	var isShort bool
	f.Result, f.Reason, isShort = ask(client, r.settings.Timeout)
	switch {
	case f.Result != "pass" && isShort:
		f.Proof = Short
	case f.Result == "temperror":
		f.Proof = Unknown
	case f.Result != "pass":
	case f.Reason == matchedAll:
		f.Reason = "the record lets everybody pass: +all"
	default:
		f.Proof = Pass
		switch everybody, _, isShort := ask(nobody(client), r.settings.Timeout/2); {
		case everybody == "pass":
			f.Proof, f.Reason = No, "the record lets everybody pass"
		case everybody == "temperror" && isShort: // somebody may have filled our places; silence of DNS is no reason
			f.Proof, f.Reason = Short, "whether the record lets everybody pass could not be asked"
		}
	}
}

// nobody is an address of the client's family that no mail can come from: of IPv4
// reserved for a future that did not come (RFC 1112, section 4), of IPv6 for
// discarding (RFC 6666). A record that passes it has ip4:0.0.0.0/0 or the like.
func nobody(client netip.Addr) netip.Addr {
	if client.Is4() {
		return netip.AddrFrom4([4]byte{240, 113, 7, 91})
	}
	return netip.AddrFrom16([16]byte{0: 0x01, 15: 0x5b})
}
