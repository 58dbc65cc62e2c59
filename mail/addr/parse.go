package addr

import "strings"

// maxText bounds what is looked at, in octets: twice the longest command line
// that the SMTP filter takes. Canonical text, which may be four times as long as
// what it was made of ("ü." is "xn--tda."), keeps within it too and leaves room
// for brackets: else it would not be its own canonical form. Addr.at relies on it.
const maxText = 8192

// Parse reads a sender as people and programs write it for a look-up: with or
// without angle brackets, with or without a source route, in any case, with
// U-labels or A-labels, with one trailing dot or none. Canonical text of plain
// ASCII is not copied, and Parse then allocates nothing; other spellings in
// plain ASCII cost one allocation.
//
// "" and "<>" give the zero Addr. A path without a domain ("root") is legal and
// has no keys. An address over 254 octets has the keys of its domain only, and a
// domain over 253 octets those of its parents. Everything that is no sender gives an *Error, and
// so does text of more than 8,192 octets, as given or as canonical form with its
// brackets.
func Parse(text string) (Addr, error) {
	s := text
	if len(s) > 1 && s[0] == '<' && s[len(s)-1] == '>' {
		s = s[1 : len(s)-1]
	}
	if seen, ok := scanSimple(s); ok && seen.ats == 1 {
		if seen.capital {
			s = strings.ToLower(s)
		}
		return Addr{text: s, at: int16(strings.IndexByte(s, '@'))}, nil
	}
	return parse(text)
}

// parse is Parse of whatever there is.
func parse(text string) (Addr, error) {
	if len(text) > maxText {
		return Addr{}, refuse(text, fault{TooLong, "more than 8192 octets"})
	}
	s := text
	if len(s) > 0 && s[0] == '<' {
		if s[len(s)-1] != '>' {
			return Addr{}, refuse(text, syntax("angle bracket without its pair"))
		}
		s = s[1 : len(s)-1]
	}
	if s == "" {
		return Addr{}, nil
	}
	p, f := scan(s)
	if f.none() && !endsHere(s[p.at:], p.end-p.at, p.domain) {
		f = syntax("more text than one address")
	}
	if f.none() && p.route&high != 0 {
		f = badRune(s[:p.start], true)
	}
	if !f.none() {
		return Addr{}, refuse(text, f)
	}
	var a Addr
	if (p.local|p.domain)&(quoted|high|literal) == 0 {
		a = p.addr(strings.ToLower(s[p.start:p.end]), p.at-p.start)
	} else {
		a, f = canonical(s, p)
	}
	if f.none() && len(a.text) > maxText-len("<>") {
		f = fault{TooLong, "canonical form of more than 8190 octets"}
	}
	if !f.none() {
		return Addr{}, refuse(text, f)
	}
	return a, nil
}

// canonical makes the Addr of s where that takes more than lower-casing.
func canonical(s string, p shape) (Addr, fault) {
	local, f := canonLocal(s[p.start:p.at], p.local)
	if f.none() && p.at == p.end && local[0] != '"' && oddDots(local) {
		local = quote(local)
	}
	if !f.none() || p.at == p.end {
		return p.addr(local, len(local)), f
	}
	domain, f := canonDomain(s[p.at+1:p.end], p.domain)
	if !f.none() {
		return Addr{}, f
	}
	return p.addr(local+"@"+domain, len(local)), fault{}
}

// endsHere reports whether s ends behind its domain of n octets, or behind one
// trailing dot. "[198.51.100.23]." is no spelling of anything.
func endsHere(s string, n int, seen octet) bool {
	return n == len(s) || n > 0 && s[n:] == "." && seen&literal == 0 && !hasDotEnd(s[:n])
}

// addr makes the Addr of canonical text that splits at index at if there is a domain.
func (p shape) addr(text string, at int) Addr {
	if p.at == p.end {
		at = -1
	}
	return Addr{text: text, at: int16(at)}
}

// DomainKey makes the key of a domain or an address literal "[...]", as a list
// names it: in any spelling, without a leading dot or "*.", one trailing dot
// allowed.
func DomainKey(domain string) (Key, error) {
	if k, ok := Simple(domain); ok && k.Kind == Domain {
		return k, nil
	}
	return domainKey(domain)
}

// domainKey is DomainKey of whatever there is.
func domainKey(domain string) (Key, error) {
	if len(domain) > maxText {
		return Key{}, refuse(domain, fault{TooLong, "more than 8192 octets"})
	}
	n, seen, f := scanDomain(domain)
	if f.none() && !endsHere(domain, n, seen) {
		f = syntax("more text than one domain")
	}
	var text string
	if f.none() {
		text, f = canonDomain(domain[:n], seen)
	}
	if f.none() && len(text) > maxDomain {
		f = fault{TooLong, "domain of more than 253 octets"}
	}
	if !f.none() {
		return Key{}, refuse(domain, f)
	}
	if seen&literal != 0 {
		return Key{Text: text, Kind: Domain, Labels: 1}, nil
	}
	return Key{Text: text, Kind: Domain, Labels: countLabels(text)}, nil
}

// LocalKey makes the key of a local-part at any domain, from the text before
// the "@" ("offers" gives "offers@"). A local-part that leaves no room for a
// domain within 254 octets is too long.
func LocalKey(local string) (Key, error) {
	if len(local) > maxText {
		return Key{}, refuse(local, fault{TooLong, "more than 8192 octets"})
	}
	n, seen, f := scanLocal(local)
	if f.none() && n < len(local) {
		f = syntax("more text than one local-part")
	}
	var text string
	if f.none() {
		text, f = canonLocal(local, seen)
	}
	if f.none() && len(text)+len("@d") > maxAddress {
		f = fault{TooLong, "local-part of more than 252 octets"}
	}
	if !f.none() {
		return Key{}, refuse(local, f)
	}
	return Key{Text: text + "@", Kind: Local}, nil
}
