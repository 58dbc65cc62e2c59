package msgauth

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"blitiri.com.ar/go/spf"
	"github.com/miekg/dns"
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
	local, domain, _ := strings.Cut(sender, "@")
	f := SPF{Domain: canonical(domain)}
	switch {
	case !client.IsValid():
		f.Reason = "the client's address is not known"
	case slices.ContainsFunc(r.settings.TrustedRelays, func(p netip.Prefix) bool { return p.Contains(client) }):
		f.Reason = "the client is a trusted relay"
	case f.Domain == "" || local == "":
		// The library cuts at the first "@", which is in a quoted local-part here; what
		// stands behind it is no name.
		f.Reason = "no domain that SPF could be about"
	case Organisation(f.Domain) == "":
		f.Reason = "a public suffix, or no registered domain"
	default:
		ctx, cancel := r.budget(ctx)
		defer cancel()
		r.check(ctx, &f, client, helo, local+"@"+f.Domain)
	}
	return f
}

func (r *Resolver) check(ctx context.Context, f *SPF, client netip.Addr, helo, sender string) {
	names := spfNames{r, networkOf(client), client.Is6()}
	ask := func(client netip.Addr) (spf.Result, error) {
		return spf.CheckHostWithSender(client.AsSlice(), canonical(helo), sender, spf.WithContext(ctx), spf.WithResolver(names))
	}
	result, err := ask(client) // the error of a pass names what matched
	f.Result = string(result)
	if err != nil {
		f.Reason = err.Error()
	}
	switch {
	case result == spf.TempError:
		f.Proof = Unknown
	case result != spf.Pass:
	case errors.Is(err, spf.ErrMatchedAll):
		f.Reason = "the record lets everybody pass: +all"
	default:
		f.Proof = Pass
		if everybody, _ := ask(nobody(client)); everybody == spf.Pass {
			f.Proof, f.Reason = No, "the record lets everybody pass"
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

// spfNames is a Resolver as the SPF library asks it.
type spfNames struct {
	*Resolver
	network netip.Prefix
	v6      bool // the client's family: of "a" and "mx" no other addresses matter
}

// LookupTXT implements spf.DNSResolver.
func (n spfNames) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return n.texts(ctx, name, dns.TypeTXT)
}

// LookupAddr implements spf.DNSResolver.
func (n spfNames) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	name, err := dns.ReverseAddr(addr)
	if err != nil {
		return nil, &net.DNSError{Err: err.Error(), Name: addr, IsNotFound: true}
	}
	return n.texts(ctx, name, dns.TypePTR)
}

func (n spfNames) texts(ctx context.Context, name string, kind uint16) ([]string, error) {
	a := n.lookup(ctx, n.network, name, kind)
	texts := make([]string, len(a.records))
	for i, rec := range a.records {
		texts[i] = rec.text
	}
	return texts, a.err(name)
}

// LookupMX implements spf.DNSResolver.
func (n spfNames) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	a := n.lookup(ctx, n.network, name, dns.TypeMX)
	hosts := make([]*net.MX, len(a.records))
	for i, rec := range a.records {
		hosts[i] = &net.MX{Host: rec.text, Pref: rec.pref}
	}
	return hosts, a.err(name)
}

// LookupIPAddr implements spf.DNSResolver. For "exists" an IPv4 address is what
// counts, whatever the client has (RFC 7208, section 5.7), so those are always
// asked for.
func (n spfNames) LookupIPAddr(ctx context.Context, host string) (all []net.IPAddr, err error) {
	kinds := []uint16{dns.TypeA, dns.TypeAAAA}
	if !n.v6 {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		a := n.lookup(ctx, n.network, host, kind)
		for _, rec := range a.records {
			all = append(all, net.IPAddr{IP: net.ParseIP(rec.text)})
		}
		if a.outcome == failed || a.outcome == refused {
			return nil, a.err(host)
		}
		if err == nil {
			err = a.err(host)
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	return nil, err
}
