package migration

import (
	"net/netip"
	"regexp"
	"regexp/syntax"
	"strings"

	"blockd/lists"
	"blockd/mail/addr"
)

// Addresses are those to try a key for addresses by: the key itself, a name below it, an address at it, and the
// address with an extension. "" is the null sender.
func Addresses(key, delimiters string) []string {
	const below = nowhere + "."
	at := strings.LastIndexByte(key, '@')
	switch {
	case unprintable(key) || strings.Trim(key, "*@.=") == "":
		return nil
	case key == "<>":
		return []string{""}
	case at <= 0:
		name := strings.TrimLeft(key, "*@.=")
		if net, ok := leading(name); ok || strings.Contains(name, "/") {
			if !ok {
				net, _ = parseNet(name)
			}
			if !net.IsValid() {
				return nil
			}
			literal := net.Addr().String()
			if net.Addr().Is6() {
				literal = "IPv6:" + literal
			}
			return []string{"someone@[" + literal + "]"}
		}
		return []string{"someone@" + name, "someone@" + below + name, "x+y@" + name}
	}
	local, domain := key[:at], key[at+1:]
	var all []string
	if domain == "" {
		_, domain, _ = strings.Cut(nobody, "@")
	} else {
		all = []string{"someone@" + domain}
	}
	all = append(all, local+"@"+domain, local+"@"+below+domain)
	if delimiters != "" && !strings.ContainsAny(local, delimiters+`"`) {
		all = append(all, local+delimiters[:1]+"x@"+domain)
	}
	return all
}

// matching are addresses that an expression of Go matches, and neighbours of theirs; none if none were found. parts:
// or in which it matches the local-part or the domain by itself.
func matching(expr string, parts bool) (all []string) {
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil
	}
	re, err := regexp.Compile("(?i)" + expr)
	var b strings.Builder
	if err != nil || !example(&b, parsed.Simplify()) || unprintable(b.String()) {
		return nil
	}
	for _, text := range []string{b.String(), b.String() + "@" + nowhere + ".example", "someone@" + b.String(), "someone" + b.String(),
		"someone@" + b.String() + ".example", "someone@" + nowhere + b.String(), "someone" + b.String() + nowhere + ".example", b.String() + nowhere + ".example",
		"someone@" + b.String() + nowhere + ".example"} {
		a, err := addr.Parse(text)
		if err != nil || a.Domain() == "" || strings.Trim(text, ".") != text || strings.Contains(text, ".@") {
			continue
		}
		local, domain := text[:strings.LastIndexByte(text, '@')], a.Domain()
		if re.MatchString(text) || parts && (re.MatchString(local) || re.MatchString(domain)) {
			return []string{text, local + "@" + nowhere + "." + domain, "someone@" + domain, "x" + text, text + ".example"}
		}
	}
	return nil
}

// maxExample bounds the text that is made for an expression, in octets.
const maxExample = 250

// example writes a short text that an expression matches.
func example(b *strings.Builder, re *syntax.Regexp) bool {
	if b.Len() > maxExample {
		return false
	}
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		c := re.Rune
		if len(c) == 0 {
			return false
		}
		pick := c[0]
		for _, wish := range "a0x-.@_" {
			for i := 0; i+1 < len(c); i += 2 {
				if wish >= c[i] && wish <= c[i+1] {
					b.WriteRune(wish)
					return true
				}
			}
		}
		b.WriteRune(pick)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('a')
	case syntax.OpAlternate:
		return example(b, re.Sub[0])
	case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
		for _, sub := range re.Sub {
			if !example(b, sub) {
				return false
			}
		}
	case syntax.OpRepeat:
		for range re.Min {
			if !example(b, re.Sub[0]) {
				return false
			}
		}
	case syntax.OpNoMatch:
		return false
	}
	return true
}

// hosts are the first and the last address of a network, and the one behind it.
func hosts(p netip.Prefix) []netip.Addr {
	first, last := p.Masked().Addr(), lists.LastOf(p.Masked())
	all := []netip.Addr{first}
	if last != first {
		all = append(all, last)
	}
	if next := last.Next(); next.IsValid() {
		all = append(all, next)
	}
	return all
}
