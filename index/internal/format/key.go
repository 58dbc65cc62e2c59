package format

import (
	"net/netip"
	"strings"

	"blockd/lists"
	"blockd/lists/pattern"
	"blockd/mail/addr"
)

const (
	MaxKey    = 320                 // octets of a sender's key
	MaxStored = 1 + pattern.MaxText // of any key: that of a pattern
)

// A key of a network is a tag, the prefix length and the octets of its address; that
// of a pattern is a tag and its text, an expression without slashes. The tags are
// controls, which no key of a sender holds: so all of them are found in the same
// store, by the same filter, and no text is ever taken for one.
const (
	TagGlob   = byte(pattern.Glob)
	TagRegexp = byte(pattern.Regexp)
	tagIPv4   = 0x04
	tagIPv6   = 0x06

	MaxNetKey = 2 + 16 // octets
)

// Scopes is the set of scopes, a bit each, in which an entry covers a sender that
// has its key: as own name, or as a parent of the sender's domain.
func Scopes(kind addr.Kind, own bool) uint8 {
	switch {
	case kind == addr.Address:
		return 1 << lists.Exact
	case kind == addr.Local:
		return 1 << lists.Local
	case own:
		return 1<<lists.Exact | 1<<lists.Tree
	}
	return 1<<lists.Sub | 1<<lists.Tree
}

// AppendNetKey appends the key of a network, which is masked and not mapped.
func AppendNetKey(b []byte, p netip.Prefix) []byte {
	if a := p.Addr(); a.Is4() {
		octets := a.As4()
		return append(append(b, tagIPv4, byte(p.Bits())), octets[:]...)
	}
	octets := p.Addr().As16()
	return append(append(b, tagIPv6, byte(p.Bits())), octets[:]...)
}

// NetOf is the network of a stored key, and false if that is the key of no network.
func NetOf(key string) (netip.Prefix, bool) {
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
	return p, Storable(p)
}

// Storable reports whether p is written in the one way that has a key.
func Storable(p netip.Prefix) bool {
	return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6()
}

// NetKind is what the entry of a network is called.
func NetKind(p netip.Prefix) lists.Kind {
	if p.IsSingleIP() {
		return lists.IP
	}
	return lists.CIDR
}

// KeyKind is the kind of entries that have keys of this kind.
func KeyKind(k addr.Kind) lists.Kind {
	if k == addr.Domain {
		return lists.Domain
	}
	return lists.Addr
}

// PatternKey is the key of a pattern of an item.
func PatternKey(k lists.Kind, text string) string {
	if k == lists.Regexp {
		return string(TagRegexp) + strings.TrimSuffix(strings.TrimPrefix(text, "/"), "/")
	}
	return string(TagGlob) + text
}

// PatternOf tells the pattern of a key, as lint prints it.
func PatternOf(key string) (lists.Kind, string, bool) {
	switch {
	case key == "":
	case key[0] == TagGlob:
		return lists.Glob, key[1:], true
	case key[0] == TagRegexp:
		return lists.Regexp, "/" + key[1:] + "/", true
	}
	return 0, "", false
}

// Describe gives item the kind of a stored key, and what it names.
func Describe(item *lists.Item, key string) {
	if net, ok := NetOf(key); ok {
		item.Kind, item.Net = NetKind(net), net
		return
	}
	if IsPersonal(key) {
		describePersonal(item, key)
		return
	}
	if kind, text, ok := PatternOf(key); ok {
		item.Kind, item.Pattern = kind, text
		return
	}
	item.Key = KeyOf(key)
	item.Kind = KeyKind(item.Key.Kind)
}

// KeyOf tells what a stored key is: an address has text on both sides of its
// last "@", a local-part ends with it, and a domain has none.
func KeyOf(text string) addr.Key {
	switch at := strings.LastIndexByte(text, '@'); {
	case at < 0 && text[0] == '[': // an address literal
		return addr.Key{Kind: addr.Domain, Text: text, Labels: 1}
	case at < 0:
		return addr.Key{Kind: addr.Domain, Text: text, Labels: uint8(min(1+strings.Count(text, "."), 127))}
	case at == len(text)-1:
		return addr.Key{Kind: addr.Local, Text: text}
	}
	return addr.Key{Kind: addr.Address, Text: text}
}
