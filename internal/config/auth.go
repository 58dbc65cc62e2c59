package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"blockd/policy"
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
	// The time for all queries of one SPF check, or of the signatures of one message.
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

// Policy is what package policy goes by, but for the resolver.
func (a Auth) policy() policy.Auth {
	return policy.Auth{Ignore: a.UnverifiedAllow == "ignore", Clients: Networks(a.Clients), Tempfail: a.OnDNSError == "tempfail"}
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

// Proofs are the words of require as package policy has them; a list without
// faults only.
func (l List) Proofs() policy.Proof {
	p, _ := policy.ParseProofs(l.Require)
	return p
}

// validateRequire checks what the allow entries of a list need. A list that blocks
// may have exceptions of its own, and requires proof for those.
func (l List) validateRequire(f *Faults, key string) {
	if l.Require != nil && len(l.Require) == 0 {
		f.add(key+".require", `is empty: nothing would make its exceptions count; want one or more of "client", "auth", "spf", "dkim", or leave it out`)
	}
	for i, word := range l.Require {
		at := fmt.Sprintf("%s.require[%d]", key, i)
		if _, err := policy.ParseProofs([]string{word}); err != nil {
			f.add(at, "%v", err)
		} else if slices.Contains(l.Require[:i], word) {
			f.add(at, "%q stands there twice", word)
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

// authWarnings are about allow entries that anybody can use, and those that nobody
// can.
func (c Config) authWarnings() (w []string) {
	warn := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	for _, l := range c.Lists {
		switch {
		case l.Action == "allow" && l.Require == nil && c.Auth.UnverifiedAllow == "ignore":
			warn(`list %q overrides nothing but by entries for clients: it has no require, and auth.unverified_allow is "ignore"`, l.Name)
		case l.Action == "allow" && l.Require == nil:
			warn("list %q allows on the sender's word alone: anybody can write these addresses in MAIL FROM; see require", l.Name)
		}
		seesMessages := c.SMTP.Open() || c.Milter.Open()
		switch asked := l.Proofs() &^ policy.ClientProof; {
		case asked != 0 && !seesMessages && c.Postfix.PolicyListen == "":
			warn("list %q requires %s, and no door that is open looks for that", l.Name, asked)
		case asked&policy.DKIMProof != 0 && !seesMessages:
			warn(`list %q requires "dkim", and no door that is open sees a message`, l.Name)
		}
	}
	return w
}
