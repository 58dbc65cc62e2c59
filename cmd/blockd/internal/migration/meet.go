package migration

import (
	"net/netip"
	"slices"
	"strings"

	"blockd/lists"
)

// meet finds the blocks that an exception meets: those that may match the same mail.
func (p *plan) meet(e *entry) *tally {
	t := &tally{}
	p.round++
	if p.pairs > maxPairs {
		return t // weigh says so
	}
	one := func(b *entry) {
		if p.pairs++; b.met == p.round || b.Outcome == Lost {
			return
		}
		b.met = p.round
		if !t.add(p.order(e, b), 1, b.site != e.site) {
			t.beaten = append(t.beaten, b)
			return
		}
		t.lost = append(t.lost, b)
		if t.first == nil {
			t.first = b
		}
	}
	for _, k := range e.keys {
		switch e.site.about {
		case clients:
			p.meetClients(k.net, one)
		case senders:
			p.meetSenders(k, one)
		}
	}
	for _, s := range p.sites {
		if p.count[s] > 0 {
			p.meetSite(e, s, t, one)
		}
	}
	return t
}

// add counts blocks that an exception meets. lost is true if it does not go before them.
func (t *tally) add(how order, n int, abroad bool) (lost bool) {
	t.abroad = t.abroad || abroad && how != behind
	switch how {
	case first:
		t.wins += n
		return false
	case partly:
		t.partly += n
	}
	t.losses += n
	return true
}

// meetSite counts the blocks of a site that an exception meets, as far as its keys do not find them.
func (p *plan) meetSite(e *entry, s *site, t *tally, one func(*entry)) {
	keys := len(e.keys) > 0
	refuses := func(b *entry) bool { return b.Outcome != Lost && b.deed.refuses() }
	switch {
	case keys && (s == e.site || s.about == e.site.about && s.about <= clients), e.site.about == logins && s.about != senders:
		return
	case s == e.site:
		p.pairs += len(s.entries)
		for _, b := range s.entries {
			if refuses(b) {
				one(b)
			}
		}
		return
	}
	// An exception for a sender meets every block for a client, and the other way
	// round: any sender may come from any client.
	how := behind
	if e.deed == pass {
		how = p.siteOrder(e.site, s)
	}
	if t.add(how, p.count[s], s != e.site) && t.first == nil {
		t.first = s.entries[slices.IndexFunc(s.entries, refuses)]
	}
}

// meetClients calls one for every block for clients that a network overlaps: those
// that it is within, and those within it.
func (p *plan) meetClients(n netip.Prefix, one func(*entry)) {
	for bits := range n.Bits() {
		if above, err := n.Addr().Prefix(bits); err == nil {
			for _, b := range p.nets[above] {
				one(b)
			}
		}
	}
	i, _ := slices.BinarySearchFunc(p.sorted, n, netip.Prefix.Compare)
	for ; i < len(p.sorted) && n.Contains(p.sorted[i].Addr()); i++ {
		for _, b := range p.nets[p.sorted[i]] {
			one(b)
		}
	}
}

// meetSenders calls one for every block for senders that a key of an exception meets.
func (p *plan) meetSenders(k key, one func(*entry)) {
	try := func(b *entry) {
		if slices.ContainsFunc(b.keys, func(o key) bool { return p.keysMeet(k, o) }) {
			one(b)
		}
	}
	all := func(blocks []*entry) {
		p.pairs += len(blocks)
		for _, b := range blocks {
			try(b)
		}
	}
	if at := strings.LastIndexByte(k.text, '@'); k.kind == lists.Addr && at >= 0 {
		for _, b := range p.locals[k.text[:at+1]] {
			one(b)
		}
	} else {
		all(p.local)
	}
	all(p.loose)
	domain := domainOf(k)
	if domain == "" {
		p.pairs += len(p.byName)
		for _, n := range p.byName {
			try(n.entry)
		}
		return
	}
	at := reversed(domain)
	p.named(at, k.kind == lists.Domain && k.scope != lists.Exact, try)
	for i := len(at) - 2; i > 0; i-- { // the names above
		if at[i] == '.' {
			p.named(at[:i+1], false, try)
		}
	}
}

// named calls try for every block at a name, and with below at those below it.
func (p *plan) named(name string, below bool, try func(*entry)) {
	i, _ := slices.BinarySearchFunc(p.byName, name, func(n named, d string) int { return strings.Compare(n.domain, d) })
	for ; i < len(p.byName) && (p.byName[i].domain == name || below && strings.HasPrefix(p.byName[i].domain, name)); i++ {
		try(p.byName[i].entry)
	}
}

// keysMeet reports whether some sender may match both keys. Where only a search
// could tell, it says yes.
func (p *plan) keysMeet(a, b key) bool {
	if b.breadth() > a.breadth() {
		a, b = b, a
	}
	domain := domainOf(a)
	switch {
	case a.isPattern() && b.isPattern():
		other := domainOf(b)
		return domain == "" || other == "" || domain == other
	case a.isPattern() && b.kind == lists.Addr && b.scope == lists.Exact:
		p.tries++
		return p.tries > maxMatches || a.pat.Match(b.text)
	case a.isPattern():
		return domain == "" || b.kind != lists.Domain || covers(b, domain)
	case a.scope == lists.Local:
		return b.kind == lists.Domain || strings.HasPrefix(b.text, a.text)
	case b.kind == lists.Addr && a.kind == lists.Addr:
		return a.text == b.text
	case b.kind == lists.Addr:
		return covers(a, domainOf(b))
	}
	return a.text == b.text && (a.scope == b.scope || a.scope == lists.Tree || b.scope == lists.Tree) ||
		a.scope != lists.Exact && below(b.text, a.text) || b.scope != lists.Exact && below(a.text, b.text)
}

// breadth orders the kinds of keys for keysMeet: patterns, local-parts, domains, addresses.
func (k key) breadth() int {
	switch {
	case k.isPattern():
		return 3
	case k.scope == lists.Local:
		return 2
	case k.kind == lists.Domain:
		return 1
	}
	return 0
}

// covers reports whether a key of a domain covers senders at exactly that name.
func covers(k key, name string) bool {
	if k.text == name {
		return k.scope != lists.Sub
	}
	return k.scope != lists.Exact && below(name, k.text)
}

// below reports whether name is a name below parent.
func below(name, parent string) bool {
	return len(name) > len(parent) && strings.HasSuffix(name, parent) && name[len(name)-len(parent)-1] == '.'
}
