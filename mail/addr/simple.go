package addr

import (
	"math/bits"
	"strings"
)

// maxSimple bounds the texts that Simple takes, in octets. No limit of a key or a
// label is within reach there, and of ten million made-up senders none is longer.
const maxSimple = 63

// simple is what scanSimple has seen in a text.
type simple struct {
	ats, dots int
	capital   bool
}

// Simple is the short way to the key of a text that nearly every line of a list and
// nearly every sender is: an address local@domain, or a domain, of ASCII letters,
// digits, "-", "_" and dots between them, at most 63 octets long. The key is the one
// that Parse or DomainKey gives. ok is false for every other text, good or bad, and
// for some odd ones of that kind: Simple may decline, it never differs.
//
// A text without capitals is not copied. Nothing is allocated for it.
func Simple(text string) (k Key, ok bool) {
	s, ok := scanSimple(text)
	if !ok {
		return Key{}, false
	}
	if s.capital {
		text = strings.ToLower(text)
	}
	if s.ats == 1 {
		return Key{Text: text, Kind: Address}, true
	}
	return Key{Text: text, Kind: Domain, Labels: uint8(s.dots + 1)}, true
}

// Eight octets are looked at at once, each in its own lane of a word; the top bit of
// a lane is the answer. Every lane holds ASCII, else the text is declined, so that
// no sum below carries into the next one.
const (
	lanes = 0x0101010101010101
	tops  = 0x80 * lanes
	rests = 0x7F * lanes // added to a lane: its top bit says that it was not 0
)

// scanSimple tells whether s is a text that Simple takes. It has no branch on what
// an octet is: the places of the dots cannot be foreseen, and a table walked octet
// by octet took 42 ns for 35 octets, of which 15 were mispredicted branches, where
// this takes 27.
//
// It declines, beside what is wrong, a hyphen behind a dot, an "@" or a hyphen, and
// with them every A-label.
func scanSimple(s string) (seen simple, ok bool) {
	if uint(len(s)-1) >= maxSimple { // "" too
		return seen, false
	}
	var bad, capitals uint64
	var behindSep, behindHyphen uint64 = 0x80, 0 // as if a dot stood before s
	for i := 0; i < len(s); i += 8 {
		var w uint64
		if i+8 <= len(s) {
			w = load(s[i : i+8])
		} else {
			w = loadRest(s, i)
		}
		notDot := w ^ '.'*lanes + rests
		notAt := w ^ '@'*lanes + rests
		notHyphen := w ^ '-'*lanes + rests
		notLine := w ^ '_'*lanes + rests
		fold := w | 0x20*lanes
		letter := (fold + (0x80-'a')*lanes) &^ (fold + (0x7F-'z')*lanes)
		digit := (w + (0x80-'0')*lanes) &^ (w + (0x7F-'9')*lanes)
		sep, hyphen := ^(notDot&notAt)&tops, ^notHyphen&tops
		bad |= w | ^(letter|digit)&notDot&notAt&notHyphen&notLine
		bad |= (sep<<8|behindSep)&(sep|hyphen) | (hyphen<<8|behindHyphen)&hyphen
		behindSep, behindHyphen = sep>>56, hyphen>>56
		capitals |= letter &^ (w << 2) // 0x20 to the top
		seen.dots += bits.OnesCount64(^notDot & tops)
		seen.ats += bits.OnesCount64(^notAt & tops)
	}
	seen.capital = capitals&tops != 0
	return seen, bad&tops == 0 && seen.ats <= 1 && endsInName(s)
}

// loadRest is load for the last octets of s, from i on, filled up with letters.
func loadRest(s string, i int) uint64 {
	if len(s) >= 8 {
		n := 8 * uint(i+8-len(s))
		return load(s[len(s)-8:])>>n | 'a'*lanes<<(64-n)
	}
	w := uint64('a' * lanes)
	for i = len(s) - 1; i >= 0; i-- {
		w = w<<8 | uint64(s[i])
	}
	return w
}

// load returns the eight octets of s, the first one lowest: one instruction on most
// machines.
func load(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// endsInName reports whether the last label of s, of letters, digits, "-" and "_",
// is there and no number.
func endsInName(s string) bool {
	for i := len(s) - 1; i >= 0; i-- {
		switch c := s[i] | 0x20; { // "." stays, "@" becomes "`"
		case 'g' <= c && c <= 'z' && c != 'x':
			return true // in no number
		case c == '.', c == '`':
			return i+1 < len(s) && !isNumber(s[i+1:]) && !endsRange(s[i+1:])
		}
	}
	return !isNumber(s) && !endsRange(s)
}

// endsRange reports whether a last label is what ends a range of client addresses, as people write it: 198.51.100.0-9,
// 198.51.100.x. A list has to look at those.
func endsRange(label string) bool {
	if last := label[len(label)-1] | 0x20; last >= 'a' { // as nearly always
		return len(label) == 1 && last == 'x'
	}
	return strings.Trim(label, "0123456789-") == ""
}
