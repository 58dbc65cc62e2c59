package migration

import (
	"fmt"
	"slices"
	"strings"

	"blockd/lists"
)

// In Postfix the first match decides, restrictions by restrictions; in blockd an
// exception goes before every block, whatever list it is in. So an exception means
// the same here if it wins against all blocks that it meets there as well. One that
// wins against none is left out: it does nothing there, and would do something here.
// One that wins against some has no equal here; it is kept, which refuses nobody who
// was let pass, and both sides of it say so.

// maxMatches bounds how many addresses are tried on patterns: beyond it each pair is
// taken for one that may meet.
const maxMatches = 2_000_000

// plan weighs the exceptions of some sites against the blocks of all.
type plan struct {
	sites  []*site
	byName []named            // blocks with a domain, by its reversed labels
	loose  []*entry           // blocks for senders without one: local-parts and patterns
	count  map[*site]int      // blocks
	orders map[[2]*site]order // of exceptions and blocks, as far as it is known
	tries  int
}

// named is a block under its domain.
type named struct {
	domain string // labels reversed, each with a dot behind it
	entry  *entry
}

// reversed turns a.bulk.test into test.bulk.a., so that all names below another
// one stand behind it in one run.
func reversed(domain string) string {
	if strings.HasPrefix(domain, "[") {
		return domain + "."
	}
	labels := strings.Split(domain, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "."
}

// domainOf returns the domain that every sender of a key has, "" if there is none.
func domainOf(k key) string {
	switch {
	case k.kind == lists.Domain:
		return k.text
	case k.scope == lists.Local, k.kind == lists.Regexp:
		return ""
	case k.kind == lists.Addr, k.kind == lists.Glob:
		domain := k.text[strings.LastIndexByte(k.text, '@')+1:]
		if k.kind == lists.Glob && strings.ContainsAny(domain, "*?") {
			return ""
		}
		return domain
	}
	return ""
}

func newPlan(sites []*site) *plan {
	p := &plan{sites: sites, count: map[*site]int{}, orders: map[[2]*site]order{}}
	for _, s := range sites {
		for _, e := range s.entries {
			if e.Outcome == Lost || !e.deed.refuses() {
				continue
			}
			p.count[s]++
			if s.about != senders {
				continue
			}
			free := false
			for _, k := range e.keys {
				if domain := domainOf(k); domain != "" {
					p.byName = append(p.byName, named{reversed(domain), e})
				} else {
					free = true
				}
			}
			if free {
				p.loose = append(p.loose, e)
			}
		}
	}
	slices.SortStableFunc(p.byName, func(a, b named) int { return strings.Compare(a.domain, b.domain) })
	return p
}

// order is how an exception and a block stand to each other.
type order uint8

const (
	unweighed order = iota
	behind          // the block counts wherever it is asked
	partly          // the exception goes before it at some places and not at others
	first           // the exception goes before it everywhere
)

// order tells how an exception stands to a block.
func (p *plan) order(a, b *entry) order {
	switch {
	case a.site == b.site && a.rank < b.rank:
		return first
	case a.site == b.site || a.deed != pass:
		return behind
	}
	return p.siteOrder(a.site, b.site)
}

// siteOrder tells whether the places where b is asked have one of a before them in
// the same restrictions.
func (p *plan) siteOrder(a, b *site) order {
	pair := [2]*site{a, b}
	if p.orders[pair] == unweighed {
		n := 0
		for _, there := range b.steps {
			if slices.ContainsFunc(a.steps, func(s step) bool { return s.phase == there.phase && s.item < there.item }) {
				n++
			}
		}
		switch n {
		case 0:
			p.orders[pair] = behind
		case len(b.steps):
			p.orders[pair] = first
		default:
			p.orders[pair] = partly
		}
	}
	return p.orders[pair]
}

// tally is how one exception fares.
type tally struct {
	wins, losses int
	partly       int      // of the losses: those that some other exception may complete
	first        *entry   // that it loses against
	lost         []*entry // that it loses against, of its own kind
	beaten       []*entry // that it wins against, of its own kind
}

// weigh settles every exception of all sites.
func (p *plan) weigh() {
	p.bury()
	for _, s := range p.sites {
		for _, e := range s.entries {
			if !e.deed.exempts() {
				continue
			}
			t := p.meet(e)
			if e.Outcome == Lost {
				if n := t.wins + t.partly; n > 0 {
					e.Now += fmt.Sprintf("; what it let pass is judged by %s behind it now", entries(n))
				}
				continue
			}
			p.settle(e, t)
		}
	}
}

// bury takes out the blocks that are never reached: an exception before them covers
// all that they match.
func (p *plan) bury() {
	for _, s := range p.sites {
		for _, e := range s.entries {
			if !e.deed.exempts() || e.Outcome == Lost || len(e.keys) == 0 {
				continue
			}
			for _, b := range p.meet(e).beaten {
				if b.Outcome != Lost && containsAll(e.keys, b.keys) {
					b.lose("never reached there: %s lets it pass before", e.Place)
					p.count[b.site]--
				}
			}
		}
	}
}

// containsAll reports whether whatever matches inner matches outer.
func containsAll(outer, inner []key) bool {
	return len(inner) > 0 && !slices.ContainsFunc(inner, func(in key) bool {
		return !slices.ContainsFunc(outer, func(out key) bool { return contains(out, in) })
	})
}

func contains(out, in key) bool {
	switch {
	case out.net.IsValid() || in.net.IsValid():
		return out.net.IsValid() && in.net.IsValid() && out.net.Bits() <= in.net.Bits() && out.net.Contains(in.net.Addr())
	case out.isPattern():
		return in.kind == out.kind && in.text == out.text || in.kind == lists.Addr && in.scope == lists.Exact && out.pat.Match(in.text)
	case out.kind == lists.Domain && in.kind == lists.Domain:
		if out.text == in.text {
			return out.scope == in.scope || out.scope == lists.Tree
		}
		return out.scope != lists.Exact && below(in.text, out.text)
	case out.kind == lists.Domain:
		domain := domainOf(in)
		return domain != "" && covers(out, domain)
	case out.scope == lists.Local:
		return in.text == out.text || in.kind == lists.Addr && strings.HasPrefix(in.text, out.text)
	}
	return in.kind == lists.Addr && in.text == out.text
}

// settle decides about one exception.
func (p *plan) settle(e *entry, t *tally) {
	if e.other != "" {
		if t.wins+t.partly == 0 {
			e.lose("%s is not blockd's", e.other)
			return
		}
		e.differ(Narrower, "%s is not blockd's; that nothing behind it in the table counts is kept", e.other)
	}
	switch {
	case t.losses == 0:
	case t.wins+t.partly == 0:
		e.lose("it frees from nothing that is carried over, and here it would free from %s%s", t.first.Place, more(t.losses))
	default:
		e.differ(Wider, "here it frees from %s too%s", t.first.Place, more(t.losses))
		// A client's entry that a sender's exception frees from is not marked: any of
		// one kind would mark all of the other, and the exception says it.
		for _, b := range t.lost {
			b.differ(Narrower, "not for whom %s lets pass", e.Place)
		}
	}
}

func more(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n-1)
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

// meet finds the blocks that an exception meets: those that may match the same mail.
func (p *plan) meet(e *entry) *tally {
	t := &tally{}
	seen := map[*entry]bool{}
	one := func(b *entry) {
		if seen[b] {
			return
		}
		seen[b] = true
		if b.Outcome == Lost {
			return
		}
		switch p.order(e, b) {
		case first:
			t.wins++
			t.beaten = append(t.beaten, b)
			return
		case partly:
			t.partly++
		}
		if t.losses++; t.first == nil {
			t.first = b
		}
		t.lost = append(t.lost, b)
	}
	same := e.site.about == senders && len(e.keys) > 0
	if same {
		for _, k := range e.keys {
			p.meetSenders(k, one)
		}
	}
	for _, s := range p.sites {
		if p.count[s] == 0 || same && s.about == senders || e.site.about == logins && s.about != senders {
			continue
		}
		if s == e.site || s.about == clients && e.site.about == clients && len(e.keys) > 0 {
			for _, b := range s.entries {
				if b.Outcome != Lost && b.deed.refuses() && (len(e.keys) == 0 || netsMeet(e.keys, b.keys)) {
					one(b)
				}
			}
			continue
		}
		// An exception for a sender meets every block for a client, and the other way
		// round: any sender may come from any client.
		if e.deed == pass {
			switch p.siteOrder(e.site, s) {
			case first:
				t.wins += p.count[s]
				continue
			case partly:
				t.partly += p.count[s]
			}
		}
		t.losses += p.count[s]
		if t.first == nil {
			t.first = s.entries[slices.IndexFunc(s.entries, func(b *entry) bool { return b.Outcome != Lost && b.deed.refuses() })]
		}
	}
	return t
}

// meetSenders calls one for every block for senders that a key of an exception meets.
func (p *plan) meetSenders(k key, one func(*entry)) {
	for _, b := range p.loose {
		if slices.ContainsFunc(b.keys, func(o key) bool { return p.keysMeet(k, o) }) {
			one(b)
		}
	}
	domain := domainOf(k)
	if domain == "" {
		for _, n := range p.byName {
			if slices.ContainsFunc(n.entry.keys, func(o key) bool { return p.keysMeet(k, o) }) {
				one(n.entry)
			}
		}
		return
	}
	at := reversed(domain)
	run := func(from string, below bool) {
		i, _ := slices.BinarySearchFunc(p.byName, from, func(n named, d string) int { return strings.Compare(n.domain, d) })
		for ; i < len(p.byName) && (p.byName[i].domain == from || below && strings.HasPrefix(p.byName[i].domain, from)); i++ {
			n := p.byName[i]
			if slices.ContainsFunc(n.entry.keys, func(o key) bool { return p.keysMeet(k, o) }) {
				one(n.entry)
			}
		}
	}
	run(at, k.kind == lists.Domain && k.scope != lists.Exact)
	for i := len(at) - 2; i > 0; i-- { // the names above
		if at[i] == '.' {
			run(at[:i+1], false)
		}
	}
}

// keysMeet reports whether some sender may match both keys. Where only a search
// could tell, it says yes.
func (p *plan) keysMeet(a, b key) bool {
	switch {
	case a.isPattern() && b.isPattern():
		da, db := domainOf(a), domainOf(b)
		return da == "" || db == "" || da == db
	case b.isPattern():
		return p.patternMeets(b, a)
	case a.isPattern():
		return p.patternMeets(a, b)
	case a.scope == lists.Local && b.scope == lists.Local:
		return a.text == b.text
	case a.scope == lists.Local:
		return b.kind == lists.Domain || strings.HasPrefix(b.text, a.text)
	case b.scope == lists.Local:
		return a.kind == lists.Domain || strings.HasPrefix(a.text, b.text)
	case a.kind == lists.Addr && b.kind == lists.Addr:
		return a.text == b.text
	case a.kind == lists.Addr:
		return covers(b, domainOf(a))
	case b.kind == lists.Addr:
		return covers(a, domainOf(b))
	}
	return covers(a, b.text) && b.scope != lists.Sub || covers(b, a.text) && a.scope != lists.Sub ||
		a.scope != lists.Exact && (below(b.text, a.text) || a.text == b.text && b.scope != lists.Exact) ||
		b.scope != lists.Exact && below(a.text, b.text)
}

// patternMeets reports whether a pattern may match what another key matches.
func (p *plan) patternMeets(pat, k key) bool {
	if k.kind == lists.Addr && k.scope == lists.Exact {
		if p.tries++; p.tries > maxMatches {
			return true
		}
		return pat.pat.Match(k.text)
	}
	domain := domainOf(pat)
	return domain == "" || k.kind != lists.Domain || covers(k, domain)
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

func netsMeet(as, bs []key) bool {
	for _, a := range as {
		for _, b := range bs {
			if a.net.Overlaps(b.net) {
				return true
			}
		}
	}
	return false
}
