package lists

import (
	"golang.org/x/net/publicsuffix"

	"blockd/addr"
)

// suffixVersion names the Public Suffix List that this program has.
func suffixVersion() string { return publicsuffix.List.String() }

// suffix judges an entry for a name and all below it, or for all below it.
func (g *Guard) suffix(key addr.Key) (c Class, message string, pass bool) {
	switch {
	case key.Text[0] == '[':
		return "", "", true // an address literal: nothing is below it
	case key.Labels == 1:
		c, message = PublicSuffix, "a single label: everybody's names are below it"
	default:
		switch is, icann := isSuffix(key.Text); {
		case !is:
			return "", "", true
		case !icann:
			return PublicSuffix, "strangers get names below it (private section of the Public Suffix List)", true
		}
		c, message = PublicSuffix, "a public suffix: everybody's names are below it"
	}
	return c, message, g.settings.AllowPublicSuffix
}

// isSuffix reports whether name, of two labels or more, is a rule of the Public
// Suffix List, matches a wildcard rule, or stands before the dot of one, and
// whether the rule is of the ICANN section. For "*.kobe.jp" these are kobe.jp,
// whose subdomains are the rule itself, and any.kobe.jp, but not the exception
// city.kobe.jp.
//
// The package's default rule never makes a name of two labels a suffix.
func isSuffix(name string) (is, icann bool) {
	// No rule has an underscore, so below a wildcard "_" is what any name is.
	// This one search answers both questions; it costs 0.2 µs.
	const probe = "_."
	suffix, icann := publicsuffix.PublicSuffix(probe + name)
	switch len(suffix) {
	case len(probe) + len(name):
		if !icann {
			if own, icann := publicsuffix.PublicSuffix(name); own == name && icann {
				return true, true // an ICANN rule above a private wildcard
			}
		}
		return true, icann
	case len(name):
		return true, icann
	}
	return false, false
}

// RegistrableDomain returns what of a domain somebody has registered: the public
// suffix, by whatever section, with one label more; "" where there is none, as
// for a public suffix and a single label.
func RegistrableDomain(domain string) string {
	key, err := addr.DomainKey(domain)
	if err != nil {
		return ""
	}
	name, err := publicsuffix.EffectiveTLDPlusOne(key.Text)
	if err != nil {
		return ""
	}
	return name
}
