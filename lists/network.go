package lists

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
)

// Networks wider than these are too-broad: 1/256 of IPv4, 1/65536 of IPv6.
const (
	minBits4 = 8
	minBits6 = 16
)

// looksNet tells whether text can only be a client address, network or range, or
// is made of digits as one: no domain has a colon, and none digits alone.
func looksNet(text string) bool {
	if text == "" {
		return false
	}
	if text[0] == '[' {
		return strings.IndexByte(text, '@') < 0
	}
	colon, letter := false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case '0' <= c && c <= '9', c == '.', c == '/', c == '-', c == ' ', c == '\t':
		case c == ':':
			colon = true
		case 'a' <= c && c <= 'f', 'A' <= c && c <= 'F', c == '[', c == ']':
			letter = true
		default:
			return false
		}
	}
	return colon || !letter
}

// networks queues a client address or a network. Most formats have no ranges.
func (r *reading) networks(text string) bool {
	if strings.IndexByte(text, '-') >= 0 {
		return r.fail(Syntax, text, noRange)
	}
	host, length, ok := strings.Cut(text, "/")
	a, err := parseIP(host)
	if err != nil {
		return r.fail(Syntax, text, err.Error())
	}
	if !ok {
		return r.prefix(text, netip.PrefixFrom(a, a.BitLen()))
	}
	bits, fits := prefixLen(length)
	if a.Is4In6() {
		// ::ffff:198.51.100.0/120 is 198.51.100.0/24; wider than the whole of
		// IPv4 it would cover both families.
		if a = a.Unmap(); fits && bits < 96 {
			return r.fail(r.broad(), text, "this covers every IPv4 address")
		}
		bits -= 96
	}
	if !fits || bits > a.BitLen() {
		return r.fail(Syntax, length, fmt.Sprintf("a prefix length is 0 to %d, without leading zeros", a.BitLen()))
	}
	return r.prefix(text, netip.PrefixFrom(a, bits))
}

// parseIP reads an address with or without brackets. It leaves a v4-mapped one as
// it is, since a prefix length counts from there.
func parseIP(text string) (netip.Addr, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if text, ok = strings.CutSuffix(inner, "]"); !ok {
			return netip.Addr{}, fmt.Errorf("a bracket that is not closed")
		}
	}
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return a, fmt.Errorf("no IP address, network or range, and no name")
	case a.Zone() != "":
		return a, fmt.Errorf("an address with a zone is of this machine alone")
	}
	return a, nil
}

// prefixLen reads 0 to 128 without leading zeros.
func prefixLen(text string) (int, bool) {
	n := 0
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = n*10 + int(text[i]-'0')
	}
	return n, len(text) == 1 || len(text) > 1 && len(text) <= 3 && text[0] != '0' && n <= 128
}

// prefix queues one network, whose host bits may be set.
func (r *reading) prefix(text string, p netip.Prefix) bool {
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	net := p.Masked()
	switch {
	case p.IsSingleIP() && p.Addr().IsUnspecified():
		return r.fail(Syntax, text, "no client has this address; it is the sink of hosts files")
	case p.Bits() < minBits(p.Addr()):
		return r.fail(r.broad(), text, "a network wider than IPv4 /8 or IPv6 /16")
	}
	it := r.network(net)
	if net.Addr() != p.Addr() && it.Class == "" {
		it.Class, it.Message = HostBits, "read as "+net.String()
	}
	return true
}

// broad is the class of a network that nothing may cover.
func (r *reading) broad() Class {
	if r.action.Allows() && r.settings.Guard.frees() {
		return Wide
	}
	return TooBroad
}

func minBits(a netip.Addr) int {
	if a.Is4() {
		return minBits4
	}
	return minBits6
}

// noRange is what is wrong with a range of client addresses where none can stand.
const noRange = "a range of client addresses, which cannot stand here; write its networks, such as 198.51.100.0/24"

// netRange queues the smallest set of networks that holds a range, its ends included: at most 62 for IPv4, 254 for
// IPv6. Of IPv4 the last octet alone may stand behind the hyphen (198.51.100.0-9), or "x" or "*" for all octets from
// one on (198.51.100.x).
func (r *reading) netRange(text string) bool {
	from, to, ok := strings.Cut(text, "-")
	from, to = trim(from), trim(to)
	if !ok {
		from, to = wildOctets(text)
	}
	a, errA := parseIP(from)
	if errA == nil && a.Is4() && allDigits(to) {
		to = from[:strings.LastIndexByte(from, '.')+1] + to
	}
	b, errB := parseIP(to)
	switch {
	case errA == nil && errB == nil:
	case !strings.ContainsAny(text, ":/[ \t") && !looksRange(text):
		return r.bareName(text) // 1-2.3-4 is a name
	default:
		return r.fail(Syntax, text, "no range of IP addresses; one is written 198.51.100.8 - 198.51.100.15 or 198.51.100.8-15")
	}
	return r.addrRange(text, a.Unmap(), b.Unmap())
}

// wildOctets reads "x" or "*" in the place of the last octets of an address: the first address that is meant, and the
// last.
func wildOctets(text string) (first, last string) {
	octets := strings.Split(text, ".")
	n := len(octets)
	for n > 0 && strings.Trim(octets[n-1], "xX*") == "" && len(octets[n-1]) == 1 {
		n--
	}
	head, wild := strings.Join(octets[:n], "."), len(octets)-n
	return head + strings.Repeat(".0", wild), head + strings.Repeat(".255", wild)
}

// looksRange tells a range of IPv4 addresses, in whatever short way people write one, also one that lacks an end, from
// a name: it has labels of digits, with a hyphen at some or an "x" or "*" in the place of some, and begins with a whole
// octet. No name is so: top-level domains have letters.
func looksRange(text string) bool {
	bare := strings.TrimLeft(text, "-")
	if bare == "" || bare[0] < '0' || bare[0] > '9' || strings.IndexByte("0123456789xX*-", bare[len(bare)-1]) < 0 {
		return false // as nearly every name
	}
	short, labels := bare != text, 0
	for label := range strings.SplitSeq(bare, ".") {
		labels++
		switch {
		case labels == 1 && !allDigits(strings.TrimRight(label, "-")):
			return false
		case label == "x", label == "X", label == "*":
			short = true
		case strings.Trim(label, "0123456789-") != "" || label == "":
			return false
		default:
			short = short || strings.IndexByte(label, '-') >= 0
		}
	}
	return short && labels > 1
}

// addrRange queues the networks of a..b.
func (r *reading) addrRange(text string, a, b netip.Addr) bool {
	switch {
	case a.BitLen() != b.BitLen():
		return r.fail(Syntax, text, "a range from one family of addresses to the other")
	case b.Less(a):
		return r.fail(Syntax, text, "a range that ends before it begins")
	}
	nets := rangeNets(a, b)
	size := 0.0 // in addresses; its sums of powers of two are exact enough
	for _, n := range nets {
		size += math.Ldexp(1, a.BitLen()-n.Bits())
	}
	if size > math.Ldexp(1, a.BitLen()-minBits(a)) {
		return r.fail(r.broad(), text, "a range wider than IPv4 /8 or IPv6 /16")
	}
	for _, n := range nets {
		if !r.prefix(text, n) {
			return false
		}
	}
	return true
}

// rangeNets cuts a..b into networks: from a on, always the widest that begins
// here and does not end beyond b.
func rangeNets(a, b netip.Addr) []netip.Prefix {
	var nets []netip.Prefix
	for {
		best := netip.PrefixFrom(a, a.BitLen())
		for bits := a.BitLen() - 1; bits >= 0; bits-- {
			p := netip.PrefixFrom(a, bits)
			if p.Masked().Addr() != a || b.Less(LastOf(p)) {
				break
			}
			best = p
		}
		nets = append(nets, best)
		last := LastOf(best)
		if last == b {
			return nets
		}
		a = last.Next()
	}
}

// LastOf returns the highest address of a network whose host bits are zero.
func LastOf(p netip.Prefix) netip.Addr {
	octets := p.Addr().AsSlice()
	for i := p.Bits(); i < len(octets)*8; i++ {
		octets[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(octets)
	return last
}
