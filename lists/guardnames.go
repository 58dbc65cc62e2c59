package lists

import (
	_ "embed"
	"strings"

	"github.com/zeebo/xxh3"
	"golang.org/x/net/publicsuffix"

	"blockd/mail/addr"
)

// shipped are domains in which very many people who do not know each other have
// their mailboxes, by the tens of thousands at least: an entry for one of them as a
// whole is a mistake or an attack. National names of one provider stand beside
// it where they have such numbers. Throw-away services are not meant, however
// large: some of them belong on lists.
//
// It is reviewed by hand and grows slowly. What is missing for an organisation,
// such as its university's or its provider's domain, goes into `protected` of its
// configuration; what is wrong in it for a list, into that list's `force`.
const shipped = `
	gmail.com googlemail.com
	outlook.com hotmail.com live.com msn.com
	hotmail.co.uk hotmail.de hotmail.es hotmail.fr hotmail.it
	live.co.uk live.fr live.it live.nl outlook.de outlook.es outlook.fr
	yahoo.com ymail.com rocketmail.com
	yahoo.ca yahoo.co.in yahoo.co.jp yahoo.co.uk yahoo.com.br yahoo.de yahoo.es yahoo.fr yahoo.it
	aol.com
	icloud.com me.com mac.com
	proton.me protonmail.com pm.me
	fastmail.com zoho.com tuta.com tutanota.com mail.com

	gmx.com gmx.net gmx.de gmx.at gmx.ch web.de t-online.de freenet.de posteo.de mailbox.org
	bluewin.ch
	orange.fr wanadoo.fr free.fr sfr.fr laposte.net
	libero.it virgilio.it tiscali.it alice.it
	seznam.cz wp.pl o2.pl onet.pl interia.pl
	ziggo.nl telenet.be
	btinternet.com sky.com virginmedia.com

	mail.ru bk.ru inbox.ru list.ru yandex.ru yandex.com ya.ru rambler.ru ukr.net
	qq.com foxmail.com 163.com 126.com yeah.net sina.com
	naver.com daum.net hanmail.net
	docomo.ne.jp ezweb.ne.jp softbank.ne.jp
	rediffmail.com

	comcast.net verizon.net att.net sbcglobal.net bellsouth.net cox.net charter.net earthlink.net
	shaw.ca bigpond.com
	uol.com.br terra.com.br bol.com.br
`

// ShippedProtected returns the domains that are protected wherever nothing is
// said: big mailbox providers, in canonical form.
func ShippedProtected() []string { return strings.Fields(shipped) }

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
	if !maybeSuffix(name) {
		return false, false
	}
	return findSuffix(name)
}

// suffixNames is the version of the Public Suffix List, and behind it a Bloom
// filter of its rules, of two bits each: written by go test -run SuffixNames -update.
//
//go:embed suffixes.bin
var suffixNames string

// suffixBits is the logarithm of the filter's bits: 10,000 rules in 32 KiB, where
// one in 150 other names is asked of the package for nothing.
const suffixBits = 18

// maybeSuffix is false only for a name that isSuffix need not look for, as nearly all
// names of a list are. A filter of another version than the package's says nothing.
func maybeSuffix(name string) bool {
	bits, ok := strings.CutPrefix(suffixNames, suffixVersion())
	if !ok || len(bits) != 1<<suffixBits/8 {
		return true
	}
	has := func(sum uint64) bool {
		a, b := suffixBit(sum), suffixBit(sum>>suffixBits)
		return bits[a/8]>>(a%8)&1 != 0 && bits[b/8]>>(b%8)&1 != 0
	}
	if has(ruleSum(name)) {
		return true
	}
	parent, _ := cutLabel(name)
	return has(wildcardSum(parent))
}

func suffixBit(sum uint64) uint64 { return sum & (1<<suffixBits - 1) }

// ruleSum is the hash of a plain rule, or of the name below which a wildcard is.
func ruleSum(name string) uint64 { return xxh3.HashString(name) }

// wildcardSum is the hash of a wildcard by the name above it.
func wildcardSum(parent string) uint64 { return xxh3.HashStringSeed(parent, 1) }

// findSuffix is isSuffix by the package alone.
func findSuffix(name string) (is, icann bool) {
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

// isTopLevel reports whether a label is a top-level domain.
func isTopLevel(label string) bool {
	suffix, icann := publicsuffix.PublicSuffix(label)
	return icann && suffix == label
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
