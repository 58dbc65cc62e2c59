package config

import (
	"cmp"
	"os"

	"blockd/lists"
	"blockd/mail/addr"
)

// Guard is what no entry of l may cover: what ships, the domains of [index] and
// of the list itself, and those of this server.
func (c Config) Guard(l List) *lists.Guard { return newGuard(c.guardSettings(l)) }

func (c Config) guardSettings(l List) lists.GuardSettings {
	s := lists.GuardSettings{
		AllowPublicSuffix: or(l.AllowPublicSuffix, c.Index.AllowPublicSuffix),
		Force:             l.Force,
		MaxProtected:      or(l.MaxProtected, c.Index.MaxProtected),
		MaxBadRatio:       or(l.MaxBadRatio, c.Index.MaxBadRatio),
		Frees:             l.freesAll(),
	}
	for _, domains := range [][]string{lists.ShippedProtected(), c.Index.Protected, l.Protected, c.OwnDomains()} {
		s.Protected = append(s.Protected, domains...)
	}
	return s
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
