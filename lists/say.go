package lists

import (
	"net/netip"
	"strings"
	"unicode"
)

// sayPlain has a form for every entry that blocks or is an exception.
func sayPlain(_ *Writer, dst []byte, it *Item) ([]byte, bool) {
	switch it.Action {
	case Block:
	case Allow:
		dst = append(dst, '!')
	default:
		return dst, false
	}
	switch it.Kind {
	case Addr:
		dst = appendAddress(dst, it.Key.Text)
	case Domain:
		switch {
		case !isName(it):
			dst = append(dst, '@') // which is exact: a literal has nothing below
		case it.Scope == Exact:
			dst = append(dst, '=')
		case it.Scope == Sub:
			dst = append(dst, '.')
		}
		dst = append(dst, it.Key.Text...)
	case IP, CIDR:
		dst = append(dst, it.Name()...)
	case Glob, Regexp:
		if !isPlainPattern(it) {
			return dst, false
		}
		dst = append(dst, it.Pattern...)
	default:
		return dst, false
	}
	return append(dst, '\n'), true
}

// isPlainPattern tells a pattern that a plain list reads as what it is: other
// formats have marks of their own for them, and know no comments behind them.
func isPlainPattern(it *Item) bool {
	text := it.Pattern
	if strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) || text != trim(text) {
		return false
	}
	if it.Kind == Regexp {
		return !strings.HasPrefix(text, "//") && cutHash(text) == text && text != "/"
	}
	at := strings.LastIndexByte(text, '@')
	if at <= 0 || strings.ContainsAny(text, `" ,;<>()\`) || strings.IndexByte(text[:at], '@') >= 0 || strings.ContainsAny(text[:1], "!#=/^~.") {
		return false
	}
	local, name := text[:at], text[at+1:]
	if below, ok := strings.CutPrefix(name, "*."); ok && local == "*" && strings.IndexByte(below, '*') < 0 {
		return false // it would read as the names below one, and "*@*.0" as nothing
	}
	return (local[0] == '*' || local[len(local)-1] == '*' || strings.IndexByte(name, '*') >= 0) && isNamePattern(name)
}

// appendAddress appends an address or a local-part with its "@". A local-part
// that begins or ends with a mark of some format is put in quotes, which change
// nothing of it: it then has no backslash or quote, since those need quotes of
// their own (RFC 5321, section 4.1.2).
func appendAddress(dst []byte, text string) []byte {
	if at, _ := lastAt(text); text[0] != '"' && strings.ContainsAny(text[:at], "!#$%&'*/?^`{|}~") {
		dst = append(dst, '"')
		dst = append(dst, text[:at]...)
		dst = append(dst, '"')
		text = text[at:]
	}
	return append(dst, text...)
}

// isName tells a domain that is a name from one that is an address literal.
func isName(it *Item) bool { return it.Kind == Domain && it.Key.Text[0] != '[' }

// sayHosts has a line for a name alone, and nothing else.
func sayHosts(_ *Writer, dst []byte, it *Item) ([]byte, bool) {
	if !isName(it) || it.Scope != Exact || it.Action != Block || isLocal(it.Key.Text) {
		return dst, false
	}
	dst = append(dst, "0.0.0.0 "...)
	dst = append(dst, it.Key.Text...)
	return append(dst, '\n'), true
}

// sayPostfix writes access(5) entries. Such a table has no key for a name without
// the names below it; it looks for ".name" only where parent_domain_matches_subdomains
// is not as it comes, so no exception may rely on that; and for a local-part at any
// domain last, when a domain may have refused already.
func sayPostfix(_ *Writer, dst []byte, it *Item) ([]byte, bool) {
	switch {
	case it.Kind == Addr && isAccessKey(it.Key.Text) && (it.Scope == Exact || it.Action != Allow):
		dst = append(dst, it.Key.Text...)
	case it.Kind == Domain && (it.Scope == Tree || !isName(it)):
		dst = append(dst, it.Key.Text...) // an address literal has nothing below
	case isName(it) && it.Scope == Sub && it.Action != Allow:
		dst = append(dst, '.')
		dst = append(dst, it.Key.Text...)
	case it.Kind == IP:
		dst = append(dst, it.Name()...)
	case it.Kind == CIDR:
		text, ok := postfixNet(it.Net)
		if !ok {
			return dst, false
		}
		dst = append(dst, text...)
	default:
		return dst, false
	}
	dst = append(dst, ' ')
	code, text := cutWord(it.Reason)
	coded := isCode(code) && text != ""
	word := ""
	switch it.Action {
	case Block:
		if word = "REJECT"; coded && code[0] == '5' {
			word = ""
		}
	case Tempfail:
		if word = "DEFER"; coded && code[0] == '4' {
			word = ""
		}
	case Discard:
		word = "DISCARD"
	case Allow: // Postfix takes no text behind it
		return append(dst, "OK\n"...), true
	default:
		return dst, false
	}
	dst = append(dst, word...)
	if it.Reason != "" {
		if word != "" {
			dst = append(dst, ' ')
		}
		dst = append(dst, it.Reason...)
	}
	return append(dst, '\n'), true
}

// postfixNet is a network as an access table has it: the leading groups of all its
// addresses. An address of IPv6 is looked up as it is printed, where groups of zeros
// may be left out; so a network that has one is found for some clients only.
func postfixNet(p netip.Prefix) (string, bool) {
	text := p.Addr().String()
	if p.Addr().Is4() {
		groups := strings.Split(text, ".")
		return strings.Join(groups[:p.Bits()/8], "."), p.Bits()%8 == 0
	}
	groups, n := p.Addr().As16(), p.Bits()/16
	for i := range n {
		if groups[2*i] == 0 && groups[2*i+1] == 0 {
			return "", false
		}
	}
	parts := strings.Split(p.Addr().StringExpanded(), ":")[:n]
	for i := range parts {
		parts[i] = strings.TrimLeft(parts[i], "0")
	}
	return strings.Join(parts, ":"), p.Bits()%16 == 0 && n > 1
}

// isAccessKey tells an address or local-part that an access table has as it is: without
// quotes, and not what a line of the table reads as a comment. No other mark means
// anything in an indexed table.
func isAccessKey(text string) bool {
	at, _ := lastAt(text)
	return at > 0 && text[0] != '#' && !strings.ContainsAny(text[:at], "\"\\<>:;,()[] \t") && !strings.HasPrefix(text[at:], "@[")
}

// isOrdinary tells an address or local-part without quotes and without the marks of
// comments, patterns and lists, which are read as such in some place of some program.
func isOrdinary(text string) bool {
	at, _ := lastAt(text)
	return at > 0 && !strings.ContainsAny(text[:at], "\"\\#*?/<>~^!$:;,()[] \t") && !strings.HasPrefix(text[at:], "@[")
}

// sayRspamd writes keys of a map, which rspamd compares as they are: no names
// below, no exceptions. A map of patterns is one of its own.
func sayRspamd(_ *Writer, dst []byte, it *Item) ([]byte, bool) {
	switch {
	case it.Action != Block:
		return dst, false
	case it.Kind == Addr && it.Scope == Exact && isOrdinary(it.Key.Text):
	case isName(it) && it.Scope == Exact:
	case it.Kind == IP, it.Kind == CIDR:
	default:
		return dst, false
	}
	dst = append(dst, it.Name()...)
	return append(dst, '\n'), true
}

// sayDnset writes names of an rbldnsd dnset.
func sayDnset(_ *Writer, dst []byte, it *Item) ([]byte, bool) {
	if !isName(it) {
		return dst, false
	}
	return sayRbldnsd(dst, it, [...]string{Exact: "", Sub: "*.", Tree: "."}[it.Scope])
}

// sayIP4set writes addresses and networks of an rbldnsd ip4set.
func sayIP4set(_ *Writer, dst []byte, it *Item) ([]byte, bool) {
	if it.Kind != IP && it.Kind != CIDR || !it.Net.Addr().Is4() {
		return dst, false
	}
	return sayRbldnsd(dst, it, "")
}

// maxTXT is the longest text that rbldnsd answers with, in octets. It would cut others
// off, and complain of each.
const maxTXT = 255

func sayRbldnsd(dst []byte, it *Item, mark string) ([]byte, bool) {
	switch it.Action {
	case Block:
	case Allow:
		dst = append(dst, '!')
	default:
		return dst, false
	}
	dst = append(dst, mark...)
	dst = append(dst, it.Name()...)
	if it.Action == Block && it.Reason != "" && len(it.Reason) <= maxTXT && !strings.ContainsAny(it.Reason, "#;") {
		dst = append(dst, " :127.0.0.2:"...)
		if it.Reason[0] == '=' { // one stands for "no template"
			dst = append(dst, '=')
		}
		dst = append(dst, strings.ReplaceAll(it.Reason, "$", "$$")...)
	}
	return append(dst, '\n'), true
}

// sayCombined writes both, each behind a line that opens its dataset.
func sayCombined(w *Writer, dst []byte, it *Item) ([]byte, bool) {
	dataset, say := dnset, sayer(sayDnset)
	if it.Kind != Domain {
		dataset, say = ip4set, sayIP4set
	}
	if w.dataset != dataset {
		dst = append(dst, "$DATASET "+dataset+":blockd @\n"...)
	}
	dst, ok := say(w, dst, it)
	if ok {
		w.dataset = dataset
	}
	return dst, ok
}

// sayRPZ writes records of a response policy zone: the truth about a name is that
// there is none. A name and all below are two records.
func sayRPZ(_ *Writer, dst []byte, it *Item) ([]byte, bool) {
	target := ""
	switch it.Action {
	case Block:
		target = " CNAME .\n"
	case Allow:
		target = " CNAME rpz-passthru.\n"
	}
	name := it.Key.Text
	if !isName(it) || target == "" || len(name) > maxDomain-zoneRoom || rpzReserved(name) {
		return dst, false
	}
	if it.Scope != Sub {
		dst = append(dst, name...)
		dst = append(dst, target...)
	}
	if it.Scope != Exact {
		dst = append(dst, "*."...)
		dst = append(dst, name...)
		dst = append(dst, target...)
	}
	return dst, true
}

// zoneRoom is left for "*." and the name of a policy zone, which is not known here: 60
// octets of it fit. With one owner that is too long a server refuses the whole zone,
// and no mail comes from a domain of more than 190 octets.
const zoneRoom = 63

// maxDomain is the longest name, in octets without the root's dot (RFC 1035).
const maxDomain = 253

// rpzReserved tells names that a policy zone reads as something else.
func rpzReserved(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.HasPrefix(last, "rpz-")
}
