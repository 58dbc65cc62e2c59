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

// Auth is [auth]: what an allow entry has to show before it overrides a block, and
// how that is found out (docs/auth.md).
type Auth struct {
	UnverifiedAllow string   `toml:"unverified_allow"` // "believe" or "ignore"
	Clients         []string `toml:"clients"`          // networks whose mail has the proof "client"
	TrustedRelays   []string `toml:"trusted_relays"`   // our own relays: SPF says nothing of them
	OnDNSError      string   `toml:"on_dns_error"`     // "block" or "tempfail"
	MaxMessage      Octets   `toml:"max_message"`      // a larger one proves nothing
	DNSTimeout      Duration `toml:"dns_timeout"`      // of all queries for SPF, or for one message
	Resolver        string   `toml:"resolver"`         // HOST:PORT; "" = the system's
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
	f.oneOf("auth.unverified_allow", a.UnverifiedAllow, "believe", "ignore")
	f.oneOf("auth.on_dns_error", a.OnDNSError, "block", "tempfail")
	f.networks("auth.clients", a.Clients, "everybody's mail would be proved")
	f.networks("auth.trusted_relays", a.TrustedRelays, "SPF would be asked of nobody")
	const least, most = Octets(64 << 10), Octets(1 << 30)
	if a.MaxMessage < least || a.MaxMessage > most {
		f.add("auth.max_message", "want %s to %s, have %s", least, most, a.MaxMessage)
	}
	// A client waits for it at RCPT, for five minutes at most, with many others.
	f.between("auth.dns_timeout", a.DNSTimeout, 500*time.Millisecond, 30*time.Second)
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
