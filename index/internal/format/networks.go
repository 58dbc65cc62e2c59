package format

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// A netLength is one prefix length of one family. A client is looked up once for
// each length that some network has, so the file says which there are.
type NetLength struct {
	tag  byte
	bits uint8
}

// NetLengthBytes is a row of section 7: tag, prefix length, six reserved octets,
// number of networks.
const NetLengthBytes = 16

// maxNetLengths is what both families can have: /0 to /32, and /0 to /128.
const maxNetLengths = 33 + 129

// NetCounts is the number of networks of each length that occurs.
type NetCounts map[NetLength]uint64

// Note counts the key, if it is that of a network.
func (n *NetCounts) Note(key []byte) {
	if len(key) < 2 || key[0] != tagIPv4 && key[0] != tagIPv6 {
		return
	}
	if *n == nil {
		*n = NetCounts{}
	}
	(*n)[NetLength{key[0], key[1]}]++
}

// Drop takes back that the key of a network was noted.
func (n NetCounts) Drop(key string) {
	l := NetLength{key[0], key[1]}
	if n[l]--; n[l] == 0 {
		delete(n, l)
	}
}

func (n *NetCounts) add(o NetCounts) {
	if *n == nil && len(o) > 0 {
		*n = NetCounts{}
	}
	for l, count := range o {
		(*n)[l] += count
	}
}

// Append encodes section 7: lengths as they are looked up, IPv4 first, the longest
// first.
func (n NetCounts) Append(b []byte) []byte {
	lengths := slices.SortedFunc(maps.Keys(n), func(a, b NetLength) int {
		return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(b.bits, a.bits))
	})
	for _, l := range lengths {
		b = append(b, l.tag, l.bits, 0, 0, 0, 0, 0, 0)
		b = binary.LittleEndian.AppendUint64(b, n[l])
	}
	return b
}

// networks is section 7 in memory.
type networks struct {
	V4, v6 []uint8 // prefix lengths, the longest first
	Counts NetCounts
}

// DecodeNetLengths reads section 7, which holds at most keys networks.
func DecodeNetLengths(b []byte, keys uint64) (networks, error) {
	n := networks{Counts: NetCounts{}}
	last := NetLength{}
	for ; len(b) > 0; b = b[NetLengthBytes:] {
		l, count := NetLength{b[0], b[1]}, binary.LittleEndian.Uint64(b[8:])
		switch {
		case l.tag != tagIPv4 && l.tag != tagIPv6, l.tag == tagIPv4 && l.bits > 32, l.bits > 128, !allZero(b[2:8]):
			return n, fmt.Errorf("networks of family %d and length %d", l.tag, l.bits)
		case l.tag < last.tag || l.tag == last.tag && l.bits >= last.bits:
			return n, fmt.Errorf("prefix lengths out of order at /%d", l.bits)
		case count == 0 || count > keys:
			return n, fmt.Errorf("%d networks of length /%d among %d keys", count, l.bits, keys)
		case l.tag == tagIPv4:
			n.V4 = append(n.V4, l.bits)
		default:
			n.v6 = append(n.v6, l.bits)
		}
		keys -= count
		n.Counts[l] = count
		last = l
	}
	return n, nil
}

// Of returns the prefix lengths that a client is looked up by, the longest first.
func (n *networks) Of(client netip.Addr) []uint8 {
	switch {
	case !client.IsValid():
		return nil
	case client.Is4():
		return n.V4
	}
	return n.v6
}
