package msgauth

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// spfRecord is a record of SPF as RFC 7208, section 12, has it.
type spfRecord struct {
	terms    []spfTerm
	redirect string // a domain-spec; "" = none
}

// spfTerm is one directive.
type spfTerm struct {
	result string // of a match, a word of section 8
	name   string // of the mechanism, in lower case
	spec   string // a domain-spec; "" = the current domain
	net    netip.Prefix
	v4, v6 int // of "a" and "mx": how many bits of an address count
}

// isSPF tells a record of this version from other texts (section 4.5).
func isSPF(text string) bool {
	const version = "v=spf1"
	return len(text) >= len(version) && strings.EqualFold(text[:len(version)], version) &&
		(len(text) == len(version) || text[len(version)] == ' ')
}

var (
	modifierForm  = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9._-]*)=(.*)$`)
	mechanismForm = regexp.MustCompile(`^([+?~-]?)([A-Za-z][A-Za-z0-9._-]*)(.*)$`)
	lengthsForm   = regexp.MustCompile(`^(.*?)(?:/(0|[1-9][0-9]?))?(?://(0|[1-9][0-9]{0,2}))?$`)
	networkForm   = regexp.MustCompile(`^:([^/]+)(?:/(0|[1-9][0-9]{0,2}))?$`)
)

// qualifiers are the results by the sign of a directive (section 4.6.2).
var qualifiers = map[string]string{"": "pass", "+": "pass", "-": "fail", "~": "softfail", "?": "neutral"}

// parseSPF reads the whole of a record. A fault anywhere is one of the record, also
// behind a term that matches (section 4.6).
func parseSPF(text string) (r spfRecord, err error) {
	explained := false
	for _, word := range strings.Split(text, " ")[1:] {
		if word == "" {
			continue
		}
		if strings.ContainsFunc(word, func(c rune) bool { return c < '!' || c > '~' }) {
			return r, errors.New("a character that no record has")
		}
		m := modifierForm.FindStringSubmatch(word)
		if m == nil {
			t, err := parseTerm(word)
			if err != nil {
				return r, err
			}
			r.terms = append(r.terms, t)
			continue
		}
		switch name, spec := strings.ToLower(m[1]), m[2]; {
		case name == "redirect" && r.redirect != "", name == "exp" && explained:
			return r, errors.New(name + "= stands there twice")
		case name != "redirect" && name != "exp":
			if _, err := checkMacros(spec, lettersOfTexts); err != nil {
				return r, fmt.Errorf("the modifier %s: %w", name, err)
			}
			continue
		case !isDomainSpec(spec):
			return r, errors.New(name + "= has no domain")
		case name == "redirect":
			r.redirect = spec
		default:
			explained = true
		}
	}
	return r, nil
}

func parseTerm(word string) (t spfTerm, err error) {
	m := mechanismForm.FindStringSubmatch(word)
	if m == nil {
		return t, errors.New("a word that is no term")
	}
	t = spfTerm{result: qualifiers[m[1]], name: strings.ToLower(m[2]), v4: 32, v6: 128}
	rest := m[3]
	switch t.name {
	case "all":
		if rest == "" {
			return t, nil
		}
	case "ip4", "ip6":
		if t.net, err = parseNetwork(rest, t.name == "ip4"); err == nil {
			return t, nil
		}
	case "a", "mx":
		if t.v4, t.v6, rest, err = cutLengths(rest); err == nil && (rest == "" || t.setSpec(rest)) {
			return t, nil
		}
	case "ptr":
		if rest == "" || t.setSpec(rest) {
			return t, nil
		}
	case "include", "exists":
		if t.setSpec(rest) {
			return t, nil
		}
	default:
		return t, fmt.Errorf("no mechanism has the name %.20q", t.name)
	}
	return t, fmt.Errorf("a mechanism %s that cannot be read", t.name)
}

func (t *spfTerm) setSpec(rest string) bool {
	spec, ok := strings.CutPrefix(rest, ":")
	t.spec = spec
	return ok && isDomainSpec(spec)
}

// cutLengths takes "/24", "//64" or both off the end.
func cutLengths(s string) (v4, v6 int, rest string, err error) {
	m := lengthsForm.FindStringSubmatch(s)
	v4, v6 = 32, 128
	if m[2] != "" {
		v4, _ = strconv.Atoi(m[2])
	}
	if m[3] != "" {
		v6, _ = strconv.Atoi(m[3])
	}
	if v4 > 32 || v6 > 128 {
		err = errors.New("a length beyond that of an address")
	}
	return v4, v6, m[1], err
}

// parseNetwork reads what follows ip4 and ip6.
func parseNetwork(s string, v4 bool) (netip.Prefix, error) {
	m := networkForm.FindStringSubmatch(s)
	if m == nil {
		return netip.Prefix{}, errors.New("no network")
	}
	a, err := netip.ParseAddr(m[1])
	if err != nil || a.Is4() != v4 || a.Zone() != "" {
		return netip.Prefix{}, errors.New("no address of the family")
	}
	bits := a.BitLen()
	if m[2] != "" {
		bits, _ = strconv.Atoi(m[2])
	}
	return a.Prefix(bits) // an error beyond the length of an address
}

// domainEnd is what a domain-spec ends with, if not by a macro.
var domainEnd = regexp.MustCompile(`\.(?:[A-Za-z0-9]*[A-Za-z][A-Za-z0-9]*|[A-Za-z0-9]+-[A-Za-z0-9-]*[A-Za-z0-9])\.?$`)

// isDomainSpec tells what names a domain: a macro-string that ends with a macro or with
// a top-level label behind a dot.
func isDomainSpec(s string) bool {
	tail, err := checkMacros(s, lettersOfDomains)
	return err == nil && s != "" && (tail == "" || domainEnd.MatchString(tail))
}
