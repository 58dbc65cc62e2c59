// Package addr says what a sender is: the grammar of an envelope sender, its
// one canonical form, and the keys under which lists may hold it.
//
// Lists and look-ups both make their keys here and nowhere else, so a spelling
// that is one sender when listed is the same sender when it writes. The rules
// are those of docs/lists.md, "Canonical keys"; the wire grammar is RFC 5321,
// section 4.1.2, with the UTF-8 extension of RFC 6531.
package addr

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
	Text   string // canonical; 1 to 320 octets
	Kind   Kind
	Labels uint8 // of a Domain: its labels, 1 to 127; a literal counts as 1. Else 0
}

// MaxKeys is the largest number of keys of one sender: the address, its
// local-part, and a domain of 127 labels with every parent.
const MaxKeys = 129

// Addr is an envelope sender in canonical form. It is a comparable value of two
// words and two bytes; copies are cheap and goroutines may share them.
//
// The zero Addr is the null reverse-path <> (RFC 5321, section 4.5.5), which no
// list can hold.
type Addr struct {
	text string // canonical address; without domain: the bare local-part
	at   int16  // index of the splitting "@", -1 without domain; 0 in the zero Addr
	long bool   // over 254 octets: looked up by its domain alone
}
