package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Auth is [auth]: what an allow entry has to show before it overrides a block (docs/auth.md).
type Auth struct {
	// Whether an allow entry of a list without require counts on the sender's word, which any client can
	// give. Entries for clients always count.
	UnverifiedAllow string `toml:"unverified_allow" want:"believe|ignore"`
	// Networks whose mail has the proof "client", such as ["192.0.2.0/24"].
	Clients []string `toml:"clients"`
	// Networks of your own relays, about whose mail SPF can say nothing.
	TrustedRelays []string `toml:"trusted_relays"`
	// What happens to a blocked sender while DNS does not say whether an allow entry counts.
	OnDNSError string `toml:"on_dns_error" want:"block|tempfail"`
	// A larger message proves nothing by its signatures. During the check a copy of it is in memory, or in
	// a file without a name beside the index.
	MaxMessage Octets `toml:"max_message" want:"64 KiB to 1 GiB"`
	// The time for all queries of one SPF check, or of the signatures of one message. Where SPF passes, half of it again.
	DNSTimeout Duration `toml:"dns_timeout" want:"500ms to 30s"`
	// The DNS server, as "ADDRESS:PORT"; "" is the system's.
	Resolver string `toml:"resolver"`
}

func defaultAuth() Auth {
	return Auth{
		UnverifiedAllow: "believe", Clients: []string{}, TrustedRelays: []string{},
		OnDNSError: "block", MaxMessage: 10 << 20, DNSTimeout: Duration(5 * time.Second),
	}
}

func (a Auth) validate(f *Faults) {
	f.networks("auth.clients", a.Clients, "everybody's mail would be proved")
	f.networks("auth.trusted_relays", a.TrustedRelays, "SPF would be asked of nobody")
	if a.Resolver != "" {
		host, port, err := net.SplitHostPort(a.Resolver)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if _, bad := netip.ParseAddr(host); err != nil || bad != nil {
			f.add("auth.resolver", `want ADDRESS:PORT such as "127.0.0.1:53", have %q`, a.Resolver)
		}
	}
}

// validateClientProof checks that the proof "client" can be given.
func (c Config) validateClientProof(f *Faults) {
	for i, l := range c.Lists {
		if at := slices.Index(l.Require, "client"); at >= 0 && len(c.Auth.Clients) == 0 {
			f.add(fmt.Sprintf("list[%d].require[%d]", i, at), `"client" needs auth.clients, the networks that it is about`)
		}
	}
}
