package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"blockd/doors/dnsbl"
	"blockd/index/live"
	"blockd/internal/spelling"
	"blockd/mail/addr"
	"blockd/mail/digest"
)

// DNS is [dns]: the door for programs that ask lists by DNS, such as rspamd, SpamAssassin and Postfix
// (docs/dns.md).
type DNS struct {
	// HOST:PORT for UDP and TCP; "" shuts this door.
	Listen string `toml:"listen"`
	// Networks whose queries are answered. Others read REFUSED.
	AllowFrom []string `toml:"allow_from"`
	// How long resolvers may keep an answer, "listed" and "not listed" alike.
	TTL Duration `toml:"ttl" want:"1s to 7d"`
	// UDP answers a second to one network, an IPv4 /24 or an IPv6 /56; 0 is any number. Of the queries beyond
	// it, one in two is told to ask again by TCP, and the other is not answered.
	MaxRate int `toml:"max_rate" want:"0 to 1000000"`
	// TCP connections at one time, at most half of them from one IPv4 address or IPv6 /64.
	MaxConnections int `toml:"max_connections" want:"1 to 1048576"`

	Zones []DNSZone `toml:"zone,omitempty"`
}

// DNSZone is [[dns.zone]], one table a zone. A name in it is a question.
type DNSZone struct {
	// The domain of the zone, such as "dbl.example.org".
	Name string `toml:"name"`
	// What the names below it are: "ip" for reversed addresses of clients, "domain" for domains of senders,
	// "hash" for digests of senders (HashBL).
	Kind string `toml:"kind" want:"ip|domain|hash"`
	// The names of the lists that count, exceptions too; [] is all of them.
	Lists []string `toml:"lists"`
	// The address that means "listed", within 127.0.0.0/8.
	Answer string `toml:"answer"`
	// For kind "hash": "md5" or "sha1" in hexadecimal digits, or "sha256" in base32 without padding. It must be
	// one of index.hashes.
	Hash string `toml:"hash,omitempty"`
}

func defaultDNS() DNS {
	return DNS{AllowFrom: []string{"127.0.0.0/8", "::1/128"}, TTL: Duration(time.Minute), MaxConnections: 256}
}

func defaultZone() DNSZone { return DNSZone{Lists: []string{}, Answer: "127.0.0.2"} }

// Open reports whether [dns] asks for a door at all.
func (d DNS) Open() bool { return d.Listen != "" }

// validateDNS checks [dns] and its zones.
func (c Config) validateDNS(f *Faults) {
	d := c.DNS
	f.hostPort("dns.listen", d.Listen)
	for i, text := range d.AllowFrom {
		if p, err := parseNetwork(text); err == nil && p.Bits() == 0 && d.MaxRate > 0 {
			continue // a public list
		}
		f.network(fmt.Sprintf("dns.allow_from[%d]", i), text, "set dns.max_rate, so that nobody can aim many answers at others")
	}
	if d.Open() && len(d.AllowFrom) == 0 {
		f.add("dns.allow_from", "nobody may ask: want networks")
	}
	if d.Open() && len(d.Zones) == 0 {
		f.add("dns.listen", "there is no [[dns.zone]], so nothing can be asked")
	}
	if d.TTL%Duration(time.Second) != 0 {
		f.add("dns.ttl", "want whole seconds, have %v", d.TTL)
	}
	names := map[string]bool{}
	for i, z := range d.Zones {
		at := fmt.Sprintf("dns.zone[%d]", i)
		f.wants(at, reflect.ValueOf(z))
		z.validate(f, at, names)
		c.validateZoneHash(f, at, z)
		c.validateZoneLists(f, at, z)
	}
}

// maxZone leaves room for a reversed IPv6 address in front of the zone's name.
const maxZone = 180

func (z DNSZone) validate(f *Faults, at string, names map[string]bool) {
	key, err := addr.DomainKey(z.Name)
	switch {
	case z.Name == "":
		f.add(at+".name", "is missing; want a domain such as \"dbl.example.org\"")
	case err != nil:
		f.add(at+".name", "want a domain, have %v", err)
	case key.Text[0] == '[':
		f.add(at+".name", "want a domain, have %q", z.Name)
	case len(key.Text) > maxZone:
		f.add(at+".name", "%d octets; a zone has at most %d, so that questions have room before it", len(key.Text), maxZone)
	case names[key.Text]:
		f.add(at+".name", "%q is the name of a zone above", z.Name)
	}
	names[key.Text] = true
	ip, err := netip.ParseAddr(z.Answer)
	if err != nil || !ip.Is4() || !ip.IsLoopback() {
		f.add(at+".answer", "want an address within 127.0.0.0/8, as programs expect of a list, have %q", z.Answer)
	}
}

func (c Config) validateZoneHash(f *Faults, at string, z DNSZone) {
	if z.Kind != string(dnsbl.Hash) {
		if z.Hash != "" {
			f.add(at+".hash", `belongs to kind "hash" alone`)
		}
		return
	}
	a, err := digest.Named(z.Hash)
	switch {
	case z.Hash == "":
		f.add(at+".hash", `is missing; want "md5", "sha1" or "sha256"`)
	case err != nil:
		f.add(at+".hash", "%v", err)
	case !c.Index.Digests().Has(a):
		f.add(at+".hash", "the index has no such digests: add %q to index.hashes", z.Hash)
	}
}

func (c Config) validateZoneLists(f *Faults, at string, z DNSZone) {
	var names []string
	for _, l := range c.Lists {
		names = append(names, l.Name)
	}
	if c.Live.Folder != None {
		names = append(names, live.ListName)
	}
	for i, name := range z.Lists {
		if !slices.Contains(names, name) && !c.Fleet.On() { // which lists a fleet has is known later
			f.add(fmt.Sprintf("%s.lists[%d]", at, i), "no [[list]] is named %q%s", name, spelling.Hint(name, "", names))
		}
	}
}

// DNSDoor returns the settings of package dnsbl but for the name of this server.
func (c Config) DNSDoor() dnsbl.Settings {
	d := c.DNS
	s := dnsbl.Settings{AllowFrom: Networks(d.AllowFrom), TTL: time.Duration(d.TTL), MaxRate: d.MaxRate, MaxConnections: d.MaxConnections}
	for _, z := range d.Zones {
		key, err := addr.DomainKey(z.Name)
		ip, bad := netip.ParseAddr(z.Answer)
		if err != nil || bad != nil {
			continue // Validate has refused it
		}
		zone := dnsbl.Zone{Name: key.Text, Kind: dnsbl.Kind(z.Kind), Answer: ip}
		if zone.Kind == dnsbl.Hash {
			zone.Hash, _ = digest.Named(z.Hash)
		}
		if len(z.Lists) > 0 {
			zone.Lists = z.Lists
		}
		zone.Required = c.Required(zone.Lists)
		s.Zones = append(s.Zones, zone)
	}
	return s
}

// Required are the names of those among these lists that are not optional; nil = among all lists.
// Until one of them was read, the DNS and RESP doors have no answer but an error.
func (c Config) Required(among []string) (names []string) {
	for _, l := range c.Lists {
		if !l.Optional && !l.Asked() && (among == nil || slices.Contains(among, l.Name)) {
			names = append(names, l.Name)
		}
	}
	return names
}

// dnsWarnings are about a door whose answers could flood a third party.
func (c Config) dnsWarnings() []string {
	if !c.DNS.Open() || c.DNS.MaxRate > 0 {
		return nil
	}
	for _, n := range Networks(c.DNS.AllowFrom) {
		if a := n.Addr(); !a.IsPrivate() && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			return []string{fmt.Sprintf("dns.allow_from %s is a public network, and dns.max_rate is 0: queries with forged addresses from it are answered at any rate", n)}
		}
	}
	return nil
}
