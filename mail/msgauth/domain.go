package msgauth

import (
	"strings"
	"time"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// canonical returns a domain in lower case and A-form, "" for what is none. One
// dot at the end is the root's, and is cut. Names that DNS knows and hosts may not
// have, with an underscore, are domains too.
func canonical(domain string) string {
	domain = strings.TrimSuffix(domain, ".")
	if !isASCII(domain) {
		a, err := idna.Lookup.ToASCII(domain)
		if err != nil {
			return ""
		}
		domain = a
	}
	domain = strings.ToLower(domain)
	if !isName(domain) {
		return ""
	}
	return domain
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > '~' }) < 0
}

// isName tells a name that may be asked for: labels of 1 to 63 octets, 253 in all
// (RFC 1035, section 2.3.4), of the characters that an unquoted local-part may
// have, since macros of SPF put one there (RFC 7208, section 7.3). A backslash
// would be an escape to who writes the query, and anything else is no name that
// somebody needs.
func isName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	label := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			if label == 0 {
				return false
			}
			label = 0
			continue
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			strings.IndexByte("-_!#$%&'*+/=?^`{|}~", c) >= 0:
		default:
			return false
		}
		if label++; label > 63 {
			return false
		}
	}
	return label > 0
}

// Organisation returns the domain that was registered for a domain: the public
// suffix with one label more, in canonical form. It is "" for a public suffix, for
// an address literal and for what is no domain: nobody owns those.
func Organisation(domain string) string {
	name := canonical(domain)
	if name == "" || isNumeric(name) {
		return ""
	}
	org, err := publicsuffix.EffectiveTLDPlusOne(name)
	if err != nil {
		return ""
	}
	return org
}

// isNumeric tells a dotted number, which has no organisation.
func isNumeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.Trim(last, "0123456789") == ""
}

// Aligned reports whether two domains have the same organisation ("relaxed" of
// RFC 7489, section 3.1). What has none is aligned with nothing, itself included.
func Aligned(a, b string) bool {
	org := Organisation(a)
	return org != "" && org == Organisation(b)
}

// SuffixList tells which Public Suffix List this program has, and of which day;
// the zero time if the list does not say.
func SuffixList() (version string, day time.Time) {
	version = publicsuffix.List.String()
	if _, rest, ok := strings.Cut(version, "("); ok && len(rest) >= len(time.DateOnly) {
		day, _ = time.Parse(time.DateOnly, rest[:len(time.DateOnly)])
	}
	return version, day
}
