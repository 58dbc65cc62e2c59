package main

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/msgauth"
	"blockd/policy"
	"blockd/spool"
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

// policy is what package policy goes by, but for the resolver.
func (a Auth) policy() policy.Auth {
	clients, _, _ := a.clients()
	return policy.Auth{Ignore: a.UnverifiedAllow == "ignore", Clients: clients, Tempfail: a.OnDNSError == "tempfail"}
}

// resolver returns the one that SPF and DKIM share; observe may be nil.
func (a Auth) resolver(observe func(msgauth.Query)) (*msgauth.Resolver, error) {
	relays, _, err := a.relays()
	if err != nil {
		return nil, fmt.Errorf("auth.trusted_relays: %w", err)
	}
	r, err := msgauth.NewResolver(msgauth.Settings{
		Server: a.Resolver, Timeout: time.Duration(a.DNSTimeout), TrustedRelays: relays, Observe: observe,
	})
	if err != nil {
		return nil, fmt.Errorf("auth.resolver: %w", err)
	}
	return r, nil
}

// observedResolver is resolver with its metrics.
func (a Auth) observedResolver(reg prometheus.Registerer) (*msgauth.Resolver, error) {
	auto := promauto.With(reg)
	times := auto.NewHistogramVec(prometheus.HistogramOpts{Name: "blockd_dns_query_seconds",
		Help:    "DNS queries for SPF, DKIM and PTR rules, by outcome: records, none, error.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 7)}, []string{"outcome"}) // 1 ms to 4 s
	_, day := msgauth.SuffixList()
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_public_suffix_list_timestamp_seconds",
		Help: "The day of the Public Suffix List that this program has, by Unix time."},
		func() float64 { return float64(day.Unix()) })
	return a.resolver(func(q msgauth.Query) { times.WithLabelValues(q.Outcome).Observe(q.Elapsed.Seconds()) })
}

// copies is the room for messages that are to prove something, for all doors. Its
// files are beside the index: that folder is written to anyway and is on a disk, which
// the system's folder for temporary files need not be.
func (c Config) copies() *spool.Store {
	return spool.New(spool.Settings{Dir: filepath.Dir(c.Index.Path)})
}

func (a Auth) clients() (nets []netip.Prefix, at int, err error) {
	return networks(a.Clients, "everybody's mail would be proved")
}

func (a Auth) relays() (nets []netip.Prefix, at int, err error) {
	return networks(a.TrustedRelays, "SPF would be asked of nobody")
}

func (a Auth) validate(f *Faults) {
	f.oneOf("auth.unverified_allow", a.UnverifiedAllow, "believe", "ignore")
	f.oneOf("auth.on_dns_error", a.OnDNSError, "block", "tempfail")
	if _, i, err := a.clients(); err != nil {
		f.add(fmt.Sprintf("auth.clients[%d]", i), "%v", err)
	}
	if _, i, err := a.relays(); err != nil {
		f.add(fmt.Sprintf("auth.trusted_relays[%d]", i), "%v", err)
	}
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

// proofs are the words of require as package policy has them; a list without
// faults only.
func (l List) proofs() policy.Proof {
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
		seesMessages := c.SMTP.open() || c.Milter.open()
		switch asked := l.proofs() &^ policy.ClientProof; {
		case asked != 0 && !seesMessages && c.Postfix.PolicyListen == "":
			warn("list %q requires %s, and no door that is open looks for that", l.Name, asked)
		case asked&policy.DKIMProof != 0 && !seesMessages:
			warn(`list %q requires "dkim", and no door that is open sees a message`, l.Name)
		}
	}
	return w
}
