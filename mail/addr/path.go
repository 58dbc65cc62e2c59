package addr

// Path is a reverse-path or forward-path as it stood on the wire, split but not
// changed: what is forwarded to the next server is exactly Raw.
type Path struct {
	Raw    []byte // with the angle brackets and the source route, if any
	Local  []byte // local-part with its quotes and backslashes; empty for <>
	Domain []byte // domain or literal; empty for <> and <postmaster>
	UTF8   bool   // has octets above 127, legal only with SMTPUTF8 (RFC 6531)
}

// ParsePath reads one path at the start of b by the strict grammar of RFC 5321,
// section 4.1.2, and returns it with the rest of b behind its ">". Source routes
// are taken and kept in Raw. It never guesses: blanks, a missing bracket, a
// trailing dot in the domain, controls and broken UTF-8 are an *Error. A path
// without a domain is accepted here; only the caller knows whether it may be
// (RCPT TO:<postmaster>, RFC 5321, section 4.5.1).
//
// Underscores, hyphens at the ends of a label, and dots anywhere in a local-part are taken beyond the grammar,
// since real senders have them. Parse accepts what ParsePath accepts, so there
// is no path that would be forwarded and could not be looked up. ParsePath
// allocates only if it fails, or if the path needs IDNA, other Unicode rules or
// has an address literal.
func ParsePath(b []byte) (p Path, rest []byte, err error) {
	if len(b) == 0 || b[0] != '<' {
		return Path{}, b, refuse(b, syntax("path without an angle bracket"))
	}
	if len(b) > 1 && b[1] == '>' {
		return Path{Raw: b[:2:2]}, b[2:], nil
	}
	s, f := scan(b[1:])
	end := 1 + s.end // of the ">"
	switch {
	case !f.none():
	case end == len(b):
		f = syntax("angle bracket without its pair")
	case b[end] != '>':
		f = syntax("more text than one address, or a trailing dot")
	case end >= maxText:
		f = fault{TooLong, "more than 8192 octets"}
	case hasDotEnd(b[:end]):
		f = syntax("trailing dot")
	}
	if !f.none() {
		return Path{}, b, refuse(b, f)
	}
	raw := b[: end+1 : end+1]
	seen := s.route | s.local | s.domain
	if seen&high != 0 {
		if _, err := Parse(string(raw)); err != nil {
			return Path{}, b, err
		}
	}
	p = Path{Raw: raw, Local: raw[1+s.start : 1+s.at], UTF8: seen&high != 0}
	if s.at < s.end {
		p.Domain = raw[2+s.at : end]
	}
	return p, b[end+1:], nil
}
