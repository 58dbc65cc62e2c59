package postfix

import (
	"strings"

	"blockd/addr"
)

// external turns an address from Postfix's internal form, in which a local-part
// has no quotes whatever its octets, into that of SMTP: `bad q@x.example` is
// `"bad q"@x.example`. The local-part ends at the last "@". Most addresses stay as
// they are, and cost nothing.
func external(internal string) string {
	internal = addr.Rewritten(internal) // we are asked before that is done
	local := internal
	if at := strings.LastIndexByte(internal, '@'); at >= 0 {
		local = internal[:at]
	}
	if internal == "" || isDotAtom(local) {
		return internal
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(local) {
		if local[i] == '"' || local[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(local[i])
	}
	b.WriteByte('"')
	b.WriteString(internal[len(local):])
	return b.String()
}

// isDotAtom reports whether a local-part needs no quotes (RFC 5322, section
// 3.2.3, and RFC 6532 for octets above 127).
func isDotAtom(local string) bool {
	dot := true // the octet before was one, or there is none
	for i := range len(local) {
		c := local[i]
		switch {
		case c == '.' && dot, c <= ' ', c == 0x7F, strings.IndexByte(`"(),:;<>@[\]`, c) >= 0:
			return false
		}
		dot = c == '.'
	}
	return !dot
}

// roomSize is how many octets of text are allocated at once: those of some forty
// requests. What outlives its request keeps all of them in memory, and that is
// one transaction a connection.
const roomSize = 2 << 10

// room makes texts of octets that will be overwritten, many of them for one
// allocation. The zero room is ready; it must not be copied.
type room struct{ b strings.Builder }

func (r *room) text(octets []byte) string {
	if r.b.Cap()-r.b.Len() < len(octets) {
		r.b.Reset()
		r.b.Grow(max(roomSize, len(octets)))
	}
	from := r.b.Len()
	r.b.Write(octets)
	return r.b.String()[from:]
}
