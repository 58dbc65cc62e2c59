package index

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"blockd/addr"
	"blockd/bloom"
	"blockd/lists"
)

// A key of a network is a tag, the prefix length and the octets of its address.
// The tags are controls, which no key of a sender holds: so networks are found in
// the same store, by the same filter, and no text is ever taken for one.
const (
	tagIPv4 = 0x04
	tagIPv6 = 0x06

	maxNetKey = 2 + 16 // octets
)

// appendNetKey appends the key of a network, which is masked and not mapped.
func appendNetKey(b []byte, p netip.Prefix) []byte {
	if a := p.Addr(); a.Is4() {
		octets := a.As4()
		return append(append(b, tagIPv4, byte(p.Bits())), octets[:]...)
	}
	octets := p.Addr().As16()
	return append(append(b, tagIPv6, byte(p.Bits())), octets[:]...)
}

// addNetwork puts one entry of a row for client addresses into its bucket.
func (w *worker) addNetwork(expiry int64, it *lists.Item) error {
	if !storable(it.Net) || it.Scope != lists.Exact && it.Scope != lists.Tree {
		return fmt.Errorf("network %s with scope %d", it.Net, it.Scope)
	}
	w.key = appendNetKey(w.key[:0], it.Net)
	return w.put(string(w.key), expiry, it)
}

// netOf is the network of a stored key, and false if that is the key of no network.
func netOf(key string) (netip.Prefix, bool) {
	var a netip.Addr
	switch {
	case len(key) == 2+4 && key[0] == tagIPv4:
		a = netip.AddrFrom4([4]byte([]byte(key[2:])))
	case len(key) == 2+16 && key[0] == tagIPv6:
		a = netip.AddrFrom16([16]byte([]byte(key[2:])))
	}
	p := netip.PrefixFrom(a, -1)
	if a.IsValid() {
		p = netip.PrefixFrom(a, int(key[1]))
	}
	return p, storable(p)
}

// storable reports whether p is written in the one way that has a key.
func storable(p netip.Prefix) bool {
	return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6()
}

// netKind is what the entry of a network is called.
func netKind(p netip.Prefix) lists.Kind {
	if p.IsSingleIP() {
		return lists.IP
	}
	return lists.CIDR
}

// A netLength is one prefix length of one family. A client is looked up once for
// each length that some network has, so the file says which there are.
type netLength struct {
	tag  byte
	bits uint8
}

// netLengthBytes is a row of section 7: tag, prefix length, six reserved octets,
// number of networks.
const netLengthBytes = 16

// maxNetLengths is what both families can have: /0 to /32, and /0 to /128.
const maxNetLengths = 33 + 129

// netCounts is the number of networks of each length that occurs.
type netCounts map[netLength]uint64

// note counts the key, if it is that of a network.
func (n *netCounts) note(key []byte) {
	if len(key) < 2 || key[0] != tagIPv4 && key[0] != tagIPv6 {
		return
	}
	if *n == nil {
		*n = netCounts{}
	}
	(*n)[netLength{key[0], key[1]}]++
}

func (n *netCounts) add(o netCounts) {
	if *n == nil && len(o) > 0 {
		*n = netCounts{}
	}
	for l, count := range o {
		(*n)[l] += count
	}
}

// append encodes section 7: lengths as they are looked up, IPv4 first, the longest
// first.
func (n netCounts) append(b []byte) []byte {
	lengths := slices.SortedFunc(maps.Keys(n), func(a, b netLength) int {
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
	v4, v6 []uint8 // prefix lengths, the longest first
	counts netCounts
}

// decodeNetLengths reads section 7, which holds at most keys networks.
func decodeNetLengths(b []byte, keys uint64) (networks, error) {
	n := networks{counts: netCounts{}}
	last := netLength{}
	for ; len(b) > 0; b = b[netLengthBytes:] {
		l, count := netLength{b[0], b[1]}, binary.LittleEndian.Uint64(b[8:])
		switch {
		case l.tag != tagIPv4 && l.tag != tagIPv6, l.tag == tagIPv4 && l.bits > 32, l.bits > 128, !allZero(b[2:8]):
			return n, fmt.Errorf("networks of family %d and length %d", l.tag, l.bits)
		case l.tag < last.tag || l.tag == last.tag && l.bits >= last.bits:
			return n, fmt.Errorf("prefix lengths out of order at /%d", l.bits)
		case count == 0 || count > keys:
			return n, fmt.Errorf("%d networks of length /%d among %d keys", count, l.bits, keys)
		case l.tag == tagIPv4:
			n.v4 = append(n.v4, l.bits)
		default:
			n.v6 = append(n.v6, l.bits)
		}
		keys -= count
		n.counts[l] = count
		last = l
	}
	return n, nil
}

// loadNetworks reads which prefix lengths occur.
func (ix *Index) loadNetworks(f *os.File) error {
	s := ix.head.sections[secNetworks]
	b, err := readSection(f, s)
	if err != nil {
		return err
	}
	if ix.networks, err = decodeNetLengths(b, ix.head.keys); err != nil {
		return corrupt(s.offset, "%v", err)
	}
	return nil
}

// LookupClient appends to dst every entry for client addresses that covers ip and
// has not expired at now, the longest prefix first; between equal ones in the order
// of Lists. An IPv4 address mapped into IPv6 is the IPv4 address; a zone is dropped.
// It does not allocate when nothing matches. An error (wrapping ErrRead) means that
// the store could not be read: the client is then neither listed nor clear.
func (ix *Index) LookupClient(dst []Match, ip netip.Addr, now time.Time) ([]Match, error) {
	ip = ip.WithZone("").Unmap()
	lengths := ix.networks.v6
	if ip.Is4() {
		lengths = ix.networks.v4
	}
	if !ip.IsValid() || len(lengths) == 0 {
		return dst, nil
	}
	found := len(dst)
	for part := range slices.Chunk(lengths, bloom.BatchSize) {
		var err error
		if dst, err = ix.lookupNets(dst, ip, part, now.Unix()); err != nil {
			return dst[:found], err
		}
	}
	runtime.KeepAlive(ix)
	return dst, nil
}

// lookupNets asks for the networks of ip with these lengths.
func (ix *Index) lookupNets(dst []Match, ip netip.Addr, lengths []uint8, now int64) ([]Match, error) {
	var hashes [bloom.BatchSize]bloom.Hash
	for i, length := range lengths {
		var key [maxNetKey]byte
		p, _ := ip.Prefix(int(length)) // which decodeNetLengths has bounded
		hashes[i] = ix.head.hash.sumString(string(appendNetKey(key[:0], p)))
	}
	perhaps, err := ix.perhaps(hashes[:len(lengths)])
	ix.asked.Add(uint64(len(lengths)))
	if err != nil || perhaps == 0 {
		return dst, err
	}
	err = ix.mapping.guarded(func() error {
		for ; perhaps != 0; perhaps &= perhaps - 1 {
			i := bits.TrailingZeros32(perhaps)
			p, _ := ip.Prefix(int(lengths[i]))
			var key [maxNetKey]byte
			c, found, err := ix.find(hashes[i], string(appendNetKey(key[:0], p)))
			if err != nil {
				return err
			}
			if !found {
				ix.falsePositives.Add(1)
				continue
			}
			if dst, err = ix.appendMatches(dst, c, Match{Kind: netKind(p), Net: p}, 1<<lists.Exact|1<<lists.Tree, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w %s: %w", ErrRead, ix.mapping.name, err)
	}
	return dst, err
}

// keyKind is the kind of entries that have keys of this kind.
func keyKind(k addr.Kind) lists.Kind {
	if k == addr.Domain {
		return lists.Domain
	}
	return lists.Addr
}
