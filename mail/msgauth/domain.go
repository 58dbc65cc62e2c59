package msgauth

import (
	"fmt"
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
		labels := strings.Split(domain, ".")
		for i, label := range labels { // beside "_domainkey" there may be a U-label (RFC 8616, section 5)
			if isASCII(label) {
				continue
			}
			a, err := idna.Lookup.ToASCII(label)
			if err != nil {
				return ""
			}
			labels[i] = a
		}
		domain = strings.Join(labels, ".")
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

// maxName is of a name as it is written (RFC 1035, section 2.3.4).
const maxName = 253

// canonicalName returns a name that DNS may have, as the library writes it, in lower case
// and without the root's dot; "" for what is none. It may hold any octets: macros of SPF
// put a local-part there (RFC 7208, section 7.3), and %_ is a blank.
func canonicalName(name string) string {
	name = strings.TrimSuffix(name, ".")
	if isName(name) && strings.IndexByte(name, '\'') < 0 {
		return strings.ToLower(name)
	}
	if len(name) > maxName {
		return ""
	}
	var b strings.Builder
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return ""
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		for i := range len(label) {
			switch c := label[i]; {
			case c < ' ' || c > '~':
				fmt.Fprintf(&b, `\%03d`, c)
			case strings.IndexByte(` '@;()"\`, c) >= 0:
				b.WriteByte('\\')
				b.WriteByte(c)
			case c >= 'A' && c <= 'Z':
				b.WriteByte(c + 'a' - 'A')
			default:
				b.WriteByte(c)
			}
		}
	}
	return b.String()
}

// isName tells a name that may be asked for: labels of 1 to 63 octets, 253 in all
// (RFC 1035, section 2.3.4), of the characters that an unquoted local-part may
// have. Anything else is no domain that somebody needs.
func isName(name string) bool {
	if name == "" || len(name) > maxName {
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
