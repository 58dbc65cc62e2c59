package msgauth

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The letters of macros (RFC 7208, section 7.2). The last three are for texts that
// people read.
const (
	lettersOfDomains = "slodiphv"
	lettersOfTexts   = lettersOfDomains + "crt"
)

var errMacro = errors.New("a macro that cannot be read")

// macroForm is what stands between the braces of a macro.
var macroForm = regexp.MustCompile(`^([A-Za-z])([0-9]*)([rR]?)([-.+,/_=]*)$`)

// macro is one of them.
type macro struct {
	letter  byte // in lower case
	keep    int  // how many parts, from the right; 0 = all
	reverse bool
	escape  bool
	delims  string
}

// walkMacros hands each literal text and each macro of s on, in their order.
func walkMacros(s, letters string, literal func(string), each func(macro)) error {
	for s != "" {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			literal(s)
			return nil
		}
		if i > 0 {
			literal(s[:i])
		}
		s = s[i+1:]
		if s == "" {
			return errMacro
		}
		end := 1
		switch s[0] {
		case '%', '_', '-':
			each(macro{letter: s[0]})
		case '{':
			if end = strings.IndexByte(s, '}') + 1; end == 0 {
				return errMacro
			}
			m, err := parseMacro(s[1:end-1], letters)
			if err != nil {
				return err
			}
			each(m)
		default:
			return errMacro
		}
		s = s[end:]
	}
	return nil
}

func parseMacro(s, letters string) (m macro, err error) {
	f := macroForm.FindStringSubmatch(s)
	if f == nil {
		return m, errMacro
	}
	lower := strings.ToLower(f[1])
	m = macro{letter: lower[0], escape: f[1] != lower, reverse: f[3] != "", delims: f[4]}
	if m.delims == "" {
		m.delims = "."
	}
	if f[2] != "" {
		if m.keep, err = strconv.Atoi(f[2]); err != nil || m.keep > maxName {
			m.keep = maxName // no name has as many parts
		}
	}
	if strings.IndexByte(letters, m.letter) < 0 || f[2] != "" && m.keep == 0 {
		return m, errMacro
	}
	return m, nil
}

// checkMacros returns the literal text behind the last macro of s.
func checkMacros(s, letters string) (tail string, err error) {
	err = walkMacros(s, letters, func(text string) { tail = text }, func(macro) { tail = "" })
	return tail, err
}

// maxExpanded bounds what the macros of one domain-spec may become, in octets: 16,000 of the local-part in a record of
// 64 KiB would be 200 MB. The longest one of use is 253 octets.
const maxExpanded = 64 << 10

// expand returns the name that a domain-spec means, at most 253 octets of it: of a longer
// one labels on the left go (RFC 7208, section 7.3). It is "", which is no name, for one of more than maxExpanded.
func (c *spfCheck) expand(spec, domain string) string {
	var b strings.Builder
	add := func(text string) {
		if b.Len()+len(text) <= maxExpanded {
			b.WriteString(text)
		} else if b.Len() <= maxExpanded {
			b.WriteString(strings.Repeat(" ", maxExpanded+1-b.Len())) // full
		}
	}
	walkMacros(spec, lettersOfDomains, add, func(m macro) {
		if b.Len() <= maxExpanded {
			add(c.value(m, domain))
		}
	})
	if b.Len() > maxExpanded {
		return ""
	}
	name := strings.TrimSuffix(b.String(), ".")
	for len(name) > maxName {
		_, rest, ok := strings.Cut(name, ".")
		if !ok {
			return ""
		}
		name = rest
	}
	return name
}

func (c *spfCheck) value(m macro, domain string) string {
	value := ""
	switch m.letter {
	case '%':
		return "%"
	case '_':
		return " "
	case '-':
		return "%20"
	case 's':
		value = c.local + "@" + c.domain
	case 'l':
		value = c.local
	case 'o':
		value = c.domain
	case 'd':
		value = domain
	case 'i':
		value = dotted(c.client)
	case 'p':
		value = c.validated(domain)
	case 'h':
		value = c.helo
	case 'v':
		value = "in-addr"
		if c.client.Is6() {
			value = "ip6"
		}
	}
	var parts []string
	from := 0
	for i := range len(value) {
		if strings.IndexByte(m.delims, value[i]) >= 0 {
			parts, from = append(parts, value[from:i]), i+1
		}
	}
	parts = append(parts, value[from:])
	if m.reverse {
		slices.Reverse(parts)
	}
	if m.keep > 0 {
		parts = parts[max(0, len(parts)-m.keep):]
	}
	value = strings.Join(parts, ".")
	if m.escape {
		value = urlEscape(value)
	}
	return value
}

// dotted is an address as %{i} has it.
func dotted(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	var b strings.Builder
	for i, octet := range a.As16() {
		if i > 0 {
			b.WriteByte('.')
		}
		fmt.Fprintf(&b, "%x.%x", octet>>4, octet&15)
	}
	return b.String()
}

// urlEscape escapes all but the unreserved characters of RFC 3986, section 2.3.
func urlEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isAlphanumeric(c) || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
