package lists

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// limit reads $MAXRANGE4: a number of addresses, or a prefix length. A later one
// can only be smaller.
func (f *rbldnsdFile) limit(r *reading, text string) {
	n, err := strconv.ParseUint(text, 10, 32)
	if length, ok := strings.CutPrefix(text, "/"); ok {
		if n, err = strconv.ParseUint(length, 10, 32); n <= 32 {
			n = 1 << (32 - n)
		} else {
			n = 0
		}
	}
	if err != nil || n == 0 {
		r.fail(Syntax, text, "a number of addresses, or a prefix length")
		return
	}
	if f.maxRange == 0 || n < f.maxRange {
		f.maxRange = n
	}
	r.skip(Directive, "")
}

// cutIP4 returns what can only be an address, network or range at the beginning of
// text, and what follows it; "" if text begins otherwise.
func cutIP4(text string) (key, rest string) {
	rest = strings.TrimLeft(text, "0123456789./-")
	key = text[:len(text)-len(rest)]
	if rest != "" && blankAt(rest) == 0 && strings.IndexByte("#;:", rest[0]) < 0 {
		return "", text
	}
	return key, trimLeft(rest)
}

// ip4 queues an address, a network or a range.
func (f *rbldnsdFile) ip4(r *reading, text string) bool {
	from, to, isRange := strings.Cut(text, "-")
	if isRange {
		return f.ip4Range(r, text, from, to)
	}
	from, length, isPrefix := strings.Cut(from, "/")
	d, ok := parseDotted(from)
	bits, fits := 8*d.n, true
	if isPrefix {
		bits, fits = prefixLen(length)
	}
	switch {
	case !ok || d.n == 1 && !isPrefix:
		return r.fail(Syntax, text, "no IPv4 address or network; of one octet alone it is written 198/8")
	case !fits || bits > 32:
		return r.fail(Syntax, length, "a prefix length is 0 to 32, without leading zeros")
	case f.maxRange != 0 && 1<<(32-bits) > f.maxRange:
		return f.tooWide(r, text)
	}
	return r.prefix(text, netip.PrefixFrom(netip.AddrFrom4(d.first), bits))
}

// ip4Range queues FROM-TO. TO has as many octets as FROM, or one alone, which is
// the last one then.
func (f *rbldnsdFile) ip4Range(r *reading, text, from, to string) bool {
	a, okA := parseDotted(from)
	b, okB := parseDotted(to)
	if okA && okB && b.n == 1 {
		last := b.first[0]
		b = a
		b.last[a.n-1] = last
	}
	if !okA || !okB || a.n != b.n {
		return r.fail(Syntax, text, "a range is two addresses of as many octets, or one and its last octet anew")
	}
	size := int64(binary.BigEndian.Uint32(b.last[:])) - int64(binary.BigEndian.Uint32(a.first[:])) + 1
	if f.maxRange != 0 && size > int64(f.maxRange) {
		return f.tooWide(r, text)
	}
	return r.addrRange(text, netip.AddrFrom4(a.first), netip.AddrFrom4(b.last))
}

func (f *rbldnsdFile) tooWide(r *reading, text string) bool {
	return r.fail(TooBroad, text, fmt.Sprintf("more than the %d addresses that $MAXRANGE4 allows", f.maxRange))
}

// dotted is the beginning of an IPv4 address.
type dotted struct {
	n           int     // octets that were written, 1 to 4
	first, last [4]byte // the others being 0, and 255
}

// parseDotted reads decimal numbers without leading zeros between dots.
func parseDotted(text string) (dotted, bool) {
	d := dotted{last: [4]byte{255, 255, 255, 255}}
	for part := range strings.SplitSeq(text, ".") {
		octet, err := strconv.ParseUint(part, 10, 8)
		if err != nil || d.n == 4 || len(part) > 1 && part[0] == '0' {
			return dotted{}, false
		}
		d.first[d.n], d.last[d.n] = byte(octet), byte(octet)
		d.n++
	}
	return d, true
}
