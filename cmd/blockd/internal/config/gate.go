package config

import (
	"cmp"
	"net/netip"
	"os"
	"slices"
	"strings"

	"blockd/lists"
	"blockd/mail/addr"
)

// Guard is what no entry of l may cover: what ships, the domains of [index] and
// of the list itself, those of this server, and the networks that the configuration names as one's own.
func (c Config) Guard(l List) *lists.Guard { return newGuard(c.guardSettings(l)) }

func (c Config) guardSettings(l List) lists.GuardSettings {
	s := lists.DefaultGuard()
	s.AllowPublicSuffix = or(l.AllowPublicSuffix, c.Index.AllowPublicSuffix)
	s.Force = l.Force
	s.MaxProtected = or(l.MaxProtected, c.Index.MaxProtected)
	s.MaxBadRatio = or(l.MaxBadRatio, c.Index.MaxBadRatio)
	s.Frees = l.freesAll()
	s.Machine = MachineNames(c.SMTP.Hostname)
	for _, domains := range [][]string{c.Index.Protected, l.Protected, c.OwnDomains()} {
		s.Protected = append(s.Protected, domains...)
	}
	s.Own = append(ownNetworks(c), s.Own...)
	return s
}

// ownNetworks are this machine and what the configuration names as one's own.
func ownNetworks(c Config) []lists.OwnNetwork {
	all := []lists.OwnNetwork{{Net: netip.MustParsePrefix("127.0.0.0/8"), What: "this machine itself"}, {Net: netip.MustParsePrefix("::1/128"), What: "this machine itself"}}
	for _, own := range []struct {
		key   string
		texts []string
	}{{"smtp.trusted", c.SMTP.Trusted}, {"smtp.proxy_from", c.SMTP.ProxyFrom}, {"auth.clients", c.Auth.Clients}, {"auth.trusted_relays", c.Auth.TrustedRelays},
		{"milter.allow_from", c.Milter.AllowFrom}, {"postfix.allow_from", c.Postfix.AllowFrom}, {"resp.allow_from", c.RESP.AllowFrom}} {
		for _, n := range Networks(own.texts) {
			all = append(all, lists.OwnNetwork{Net: n, What: "which is in " + own.key})
		}
	}
	return all
}

// MachineNames are the names by which this machine calls itself, in full and without their domain, with another one
// that it is given; "" is none.
func MachineNames(another string) (names []string) {
	for _, name := range []string{MachineName(), another} {
		name = strings.ToLower(name)
		short, _, _ := strings.Cut(name, ".")
		for _, n := range []string{name, short} {
			if n != "" && !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

// freesAll reports whether the exceptions of the list reach all lists.
func (l List) freesAll() bool { return l.Action == "allow" || l.Exceptions == "all" }

// newGuard makes a guard of domains that Validate has seen.
func newGuard(s lists.GuardSettings) *lists.Guard {
	g, err := lists.NewGuard(s)
	if err != nil {
		panic(err) // ours: what users write was checked
	}
	return g
}

// or is what a list says itself, or else what [index] says for all.
func or[T any](own *T, all T) T {
	if own != nil {
		return *own
	}
	return all
}

// OwnDomains are the server's own name and the domain that was registered for
// it: to block them is to block one's own users. A machine without a name of
// more than one label, such as a container, has none.
func (c Config) OwnDomains() []string {
	key, err := addr.DomainKey(cmp.Or(c.SMTP.Hostname, MachineName()))
	if err != nil || key.Labels < 2 {
		return nil
	}
	if registered := lists.RegistrableDomain(key.Text); registered != "" && registered != key.Text {
		return []string{registered, key.Text}
	}
	return []string{key.Text}
}

// mostGrow is how a list says that it may grow by any factor: from the least that is compared,
// 1,000 entries, to ten times the most that an index is made for.
const mostGrow = 1e6

// MachineName is what the system calls itself.
func MachineName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}
