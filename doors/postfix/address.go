package postfix

import (
	"strings"

	"blockd/mail/addr"
)

// external converts an address from Postfix's internal form to that of SMTP. The internal form
// has a local-part without quotes, whatever its octets: `bad q@x.example` becomes `"bad
// q"@x.example`. The local-part ends at the last "@". Most addresses stay as they are and cost
// no allocation.
func external(internal string) string {
	internal = addr.Rewritten(internal) // Postfix asks before it rewrites the address
	local := internal
	if at := strings.LastIndexByte(internal, '@'); at >= 0 {
		local = internal[:at]
	}
	if internal == "" || needsNone(local) {
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

// needsNone reports whether a local-part needs no quotes (RFC 5322, section 3.2.3, and RFC 6532 for octets above 127).
// Dots may stand anywhere, as package addr has it.
func needsNone(local string) bool {
	for i := range len(local) {
		if c := local[i]; c <= ' ' || c == 0x7F || strings.IndexByte(`"(),:;<>@[\]`, c) >= 0 {
			return false
		}
	}
	return local != ""
}

// roomSize is the number of octets allocated at once, enough for some forty requests. A text
// that outlives its request keeps the whole block in memory; each connection has one
// transaction whose texts do.
const roomSize = 2 << 10

// room copies octets that will be overwritten into texts, many texts for each allocation. The
// zero room is ready for use. It must not be copied.
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
