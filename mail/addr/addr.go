// Package addr says what a sender is: the grammar of an envelope sender, its
// one canonical form, and the keys under which lists may hold it.
//
// Lists and look-ups both make their keys here and nowhere else, so a spelling
// that is one sender when listed is the same sender when it writes. The rules
// are those of docs/lists.md, "Canonical keys"; the wire grammar is RFC 5321,
// section 4.1.2, with the UTF-8 extension of RFC 6531.
package addr

import "strings"

// Kind tells what a Key names.
type Kind uint8

// The kinds of keys. Keys of different kinds are never equal as text: an address
// has text on both sides of its last "@", a local-part key ends with "@", and a
// domain has no "@" outside a literal's brackets.
const (
	Address Kind = iota // "promo@bulk.test"
	Local               // "offers@": this local-part at any domain
	Domain              // "bulk.test", or an address literal "[198.51.100.23]"
)

// Key is one canonical text that a list can hold and a look-up can ask for.
// Keys are comparable values.
type Key struct {
	Text   string // canonical; 1 to 254 octets
	Kind   Kind
	Labels uint8 // of a Domain: its labels, 1 to 127; a literal counts as 1. Else 0
}

// KindBit is the bit of k's kind in a set of kinds: bit 0 is of addresses, 1 of local-parts, 1+n of domains of n labels up to 61, 63 of
// longer ones. Who knows the kinds of all entries need not look for a key of another one.
func (k Key) KindBit() uint64 {
	switch {
	case k.Kind == Address:
		return 1
	case k.Kind == Local:
		return 2
	case k.Labels <= 61:
		return 1 << (1 + k.Labels)
	}
	return 1 << 63
}

// MaxKeys bounds the keys of one sender: the address, its local-part, and a
// domain of 127 labels with every parent. (The three do not fit in 254 octets
// together, so 128 is the most that occurs.)
const MaxKeys = 129

// The lengths that decide about keys, in octets of the canonical form.
const (
	maxAddress = 254 // RFC 5321, section 4.5.3.1.3, less the brackets
	maxDomain  = 253 // RFC 1035's 255 less the root label and its length octet
	maxLabel   = 63
)

// Addr is an envelope sender in canonical form. It is a comparable value of two
// words and two bytes; copies are cheap and goroutines may share them.
//
// The zero Addr is the null reverse-path <> (RFC 5321, section 4.5.5), which no
// list can hold.
type Addr struct {
	text string // canonical address; without domain: the bare local-part
	at   int16  // index of the splitting "@", -1 without domain; 0 in the zero Addr
}

// Null reports whether a is the null reverse-path.
func (a Addr) Null() bool { return a == Addr{} }

// String returns the canonical address without angle brackets, "" for <>.
func (a Addr) String() string { return a.text }

// Local returns the canonical local-part, quoted where it must be.
func (a Addr) Local() string {
	if a.at < 0 {
		return a.text
	}
	return a.text[:a.at]
}

// Domain returns the canonical domain in A-form or the literal with its
// brackets; "" when there is none.
func (a Addr) Domain() string {
	if a.at <= 0 {
		return ""
	}
	return a.text[a.at+1:]
}

// Keys appends to dst the keys under which lists may hold a, the most specific
// first: the address, the local-part, the domain and each parent domain down to
// the last label. A literal has no parents. The texts share a's memory, so with
// room in dst nothing is allocated.
func (a Addr) Keys(dst []Key) []Key {
	domain := a.Domain()
	if domain == "" {
		return dst
	}
	if len(domain) > maxDomain { // no list can hold it, but its parents
		k, _ := readableDomain(domain)
		return k.AndParents(dst)
	}
	if k, ok := a.Key(); ok {
		dst = append(dst, k, Key{Text: a.text[:a.at+1], Kind: Local})
	}
	if domain[0] == '[' {
		return append(dst, Key{Text: domain, Kind: Domain, Labels: 1})
	}
	return Key{Text: domain, Kind: Domain, Labels: countLabels(domain)}.AndParents(dst)
}

// AndParents appends to dst the key of a domain and those of its parents, down to
// the last label. Of a literal and of other kinds it is the key alone.
func (k Key) AndParents(dst []Key) []Key {
	for ; ; k.Labels-- {
		dst = append(dst, k)
		if k.Labels <= 1 {
			return dst
		}
		k.Text = k.Text[strings.IndexByte(k.Text, '.')+1:]
	}
}

// Key returns the key of the address itself, as a list entry that names a whole
// address needs it; ok is false when a has none (null, without domain, too long).
func (a Addr) Key() (k Key, ok bool) {
	if a.at <= 0 || len(a.text) > maxAddress {
		return Key{}, false
	}
	return Key{Text: a.text, Kind: Address}, true
}

// DomainKey is the key of the address's domain. ok is false without one.
func (a Addr) DomainKey() (k Key, ok bool) {
	domain := a.Domain()
	switch {
	case domain == "" || len(domain) > maxDomain:
		return Key{}, false
	case domain[0] == '[':
		return Key{Text: domain, Kind: Domain, Labels: 1}, true
	}
	return Key{Text: domain, Kind: Domain, Labels: countLabels(domain)}, true
}

// countLabels is for canonical domains of at most maxDomain octets, so that the
// result is at most 127.
func countLabels(domain string) uint8 { return uint8(strings.Count(domain, ".") + 1) }
