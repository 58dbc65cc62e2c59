package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

// errNotPublic is for a server that Source.Public does not allow.
var errNotPublic = errors.New("is not of the public internet, nor of a network that such lists may come from (http.lists_from)")

// notPublic are networks that package netip takes for global ones, and that lead to no server of the public internet: shared address
// space, protocol assignments, documentation, benchmarks, reserved, and those in which an IPv4 address of any kind stands.
var notPublic = func() (all []netip.Prefix) {
	for _, text := range []string{"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"240.0.0.0/4", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "fec0::/10"} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}()

// allows reports whether a source that wants public servers may ask the one at a.
func (s *source) allows(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(s.Networks, in) || a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(notPublic, in)
}

// mayAsk reports why a list, or a checksum, must not come from u, as far as u itself shows it.
func (s *source) mayAsk(u *url.URL) error {
	if err := mayAsk(u, s.Insecure); err != nil || !s.Public {
		return err
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	a, err := netip.ParseAddr(host)
	switch {
	case u.Scheme != "https":
		return ErrInsecure
	case err == nil && s.allows(a):
		return nil
	case err == nil:
		return fmt.Errorf("%s %w", host, errNotPublic)
	case host == "localhost" || strings.HasSuffix(host, ".localhost"):
		if !s.allows(netip.AddrFrom4([4]byte{127, 0, 0, 1})) {
			return fmt.Errorf("%s %w", host, errNotPublic)
		}
	}
	return nil
}

// through is what asks the servers of a source.
func (f *Fetcher) through(s *source) http.RoundTripper {
	if !s.Public {
		return f.transport
	}
	direct := f.transport.Clone()
	direct.Proxy = nil
	dialer := net.Dialer{Timeout: connectTime, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address) // where the name has led
		if err == nil && !s.allows(to.Addr()) {
			err = fmt.Errorf("%s %w", to.Addr(), errNotPublic)
		}
		return err
	}}
	direct.DialContext = dialer.DialContext
	return public{direct, f.transport}
}

// public asks directly by the one, and where there is a proxy by the other.
type public struct{ direct, proxied *http.Transport }

func (p public) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.proxied.Proxy != nil {
		if proxy, err := p.proxied.Proxy(r); err != nil || proxy != nil {
			return p.proxied.RoundTrip(r)
		}
	}
	return p.direct.RoundTrip(r)
}
