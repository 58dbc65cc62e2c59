package addr

// Parse reads a sender as people and programs write it for a look-up: with or
// without angle brackets, with or without a source route, in any case, with
// U-labels or A-labels. Text that is canonical already is not copied, and Parse
// then allocates nothing.
//
// "" and "<>" give the zero Addr. A path without a domain ("root") is legal and
// has no keys; so is a domain over 253 octets. An address over 254 octets has
// the keys of its domain only. Everything that is no sender gives an *Error.
func Parse(text string) (Addr, error) { panic("unwritten") }

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
// (RCPT TO:<postmaster>, RFC 5321, section 4.5.1). ParsePath does not allocate
// unless it fails.
func ParsePath(b []byte) (p Path, rest []byte, err error) { panic("unwritten") }

// DomainKey makes the key of a domain or an address literal "[...]", as a list
// names it: in any spelling, without a leading dot or "*.", one trailing dot
// allowed.
func DomainKey(domain string) (Key, error) { panic("unwritten") }

// LocalKey makes the key of a local-part at any domain, from the text before
// the "@" ("offers" gives "offers@").
func LocalKey(local string) (Key, error) { panic("unwritten") }

// Null reports whether a is the null reverse-path.
func (a Addr) Null() bool { return a == Addr{} }

// String returns the canonical address without angle brackets, "" for <>.
func (a Addr) String() string { return a.text }

// Local returns the canonical local-part, quoted where it must be.
func (a Addr) Local() string { panic("unwritten") }

// Domain returns the canonical domain in A-form or the literal with its
// brackets; "" when there is none.
func (a Addr) Domain() string { panic("unwritten") }

// Keys appends to dst the keys under which lists may hold a, the most specific
// first: the address, the local-part, the domain and each parent domain down to
// the last label. A literal has no parents. The texts share a's memory, so with
// room in dst nothing is allocated.
func (a Addr) Keys(dst []Key) []Key { panic("unwritten") }

// Key returns the key of the address itself, as a list entry that names a whole
// address needs it; ok is false when a has none (null, without domain, too long).
func (a Addr) Key() (k Key, ok bool) { panic("unwritten") }
