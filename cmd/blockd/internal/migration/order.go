package migration

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"blockd/lists"
)

// In Postfix the first match decides, restrictions by restrictions; in blockd an
// exception goes before the blocks of its own list, or of every list. Its own list is
// enough for a table none of whose exceptions wins against a block elsewhere; else they
// reach all. Such an exception means the same here if it wins against all blocks that
// it meets there as well. One that wins against none is left out: it does nothing there,
// and would do something here. One that wins against some has no equal here; it is kept,
// which refuses nobody who was let pass, and both sides of it say so.

// maxMatches bounds how many addresses are tried on patterns: beyond it each pair is
// taken for one that may meet. maxPairs bounds the pairs that are looked at, a
// second's worth: a table of some thousand local-parts that are let pass before as
// many names that are not.
const (
	maxMatches = 2_000_000
	maxPairs   = 10_000_000
)

// maxSaid is how many exceptions are named beside a block that they free from.
const maxSaid = 3

// plan weighs the exceptions of some sites against the blocks of all.
type plan struct {
	sites  []*site
	byName []named                   // blocks with a domain, by its reversed labels
	loose  []*entry                  // blocks for senders without one: patterns, and of some, local-parts
	local  []*entry                  // blocks for a local-part and nothing else
	locals map[string][]*entry       // the same, by it
	nets   map[netip.Prefix][]*entry // blocks for clients
	sorted []netip.Prefix            // of nets: each before those within it
	count  map[*site]int             // blocks
	orders map[[2]*site]order        // of exceptions and blocks, as far as it is known
	tries  int
	pairs  int
	round  int            // of meet
	freed  map[*entry]int // exceptions that free from a block and are not before it
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
	p := &plan{sites: sites, count: map[*site]int{}, orders: map[[2]*site]order{}, freed: map[*entry]int{},
		locals: map[string][]*entry{}, nets: map[netip.Prefix][]*entry{}}
	for _, s := range sites {
		for _, e := range s.entries {
			if e.Outcome == Lost || !e.deed.refuses() {
				continue
			}
			p.count[s]++
			free := false
			for _, k := range e.keys {
				switch domain := domainOf(k); {
				case k.net.IsValid():
					p.nets[k.net] = append(p.nets[k.net], e)
				case s.about != senders:
				case domain != "":
					p.byName = append(p.byName, named{reversed(domain), e})
				case len(e.keys) == 1 && k.scope == lists.Local:
					p.local = append(p.local, e)
					p.locals[k.text] = append(p.locals[k.text], e)
				default:
					free = true
				}
			}
			if free {
				p.loose = append(p.loose, e)
			}
		}
	}
	slices.SortStableFunc(p.byName, func(a, b named) int { return strings.Compare(a.domain, b.domain) })
	p.sorted = slices.SortedFunc(maps.Keys(p.nets), netip.Prefix.Compare)
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
		p.orders[pair] = partly
		if n == 0 {
			p.orders[pair] = behind
		} else if n == len(b.steps) {
			p.orders[pair] = first
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
	abroad       bool     // of the wins and of partly: some are in another site
}

// atHome is the tally of an exception that reaches the blocks of its own site alone.
func (t *tally) atHome(s *site) *tally {
	away := func(b *entry) bool { return b.site != s }
	own := &tally{lost: slices.DeleteFunc(slices.Clone(t.lost), away), beaten: slices.DeleteFunc(slices.Clone(t.beaten), away)}
	if own.wins, own.losses = len(own.beaten), len(own.lost); own.losses > 0 {
		own.first = own.lost[0]
	}
	return own
}

// oneList reports whether all entries of a site that refuse or let pass are of one list.
func (s *site) oneList() bool {
	seen := map[part]bool{}
	for _, e := range s.entries {
		for _, k := range e.keys {
			if e.Outcome != Lost && (e.deed.exempts() || e.deed.refuses()) {
				seen[partOf(e, k)] = true
			}
		}
	}
	return len(seen) <= 1
}

// weigh settles every exception of all sites. The error is ErrTooBig.
func (p *plan) weigh() error {
	p.bury()
	for _, s := range p.sites {
		p.weighSite(s)
	}
	if p.pairs > maxPairs {
		return fmt.Errorf("%w: more than %d pairs of an exception and a block that may meet", ErrTooBig, maxPairs)
	}
	for b, n := range p.freed {
		if n > maxSaid {
			b.differ(Narrower, "nor for whom %s more let pass", entries(n-maxSaid))
		}
	}
	return nil
}

// weighSite settles the exceptions of one site.
func (p *plan) weighSite(s *site) {
	s.home = s.name != "" && s.oneList()
	var kept []*entry
	tallies := map[*entry]*tally{}
	for _, e := range s.entries {
		if !e.deed.exempts() {
			p.outdone(e)
			continue
		}
		t := p.meet(e)
		if e.Outcome != Lost {
			kept, tallies[e] = append(kept, e), t
			s.home = s.home && !t.abroad && len(e.keys) > 0
		} else if n := t.wins + t.partly; n > 0 {
			e.Now += fmt.Sprintf("; what it let pass is judged by %s behind it now", entries(n))
		}
	}
	for _, e := range kept {
		t := tallies[e]
		if s.home && t.wins > 0 {
			t = t.atHome(s)
		}
		p.settle(e, t)
	}
}

// outdone says of an entry that takes mail which blocks it goes before here: those that it
// is narrower than. There they refuse such mail all the same.
func (p *plan) outdone(e *entry) {
	if e.deed != hold && e.deed != mark || e.Outcome == Lost {
		return
	}
	t := p.meet(e)
	others := slices.DeleteFunc(slices.Clone(t.lost), func(b *entry) bool { // the narrower of the two decides there as well
		return !b.deed.answers() || b.site == e.site && !e.site.ordered && !slices.ContainsFunc(b.keys, key.isPattern)
	})
	switch n := t.losses - len(t.lost) + len(others); {
	case n <= 0:
	case len(others) == 0:
		e.differ(Wider, "here it goes before %s about the client too", entries(n))
	default:
		e.differ(Wider, "here it goes before %s too, where it is the narrower one%s", others[0].Place, more(n))
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
	wins := t.wins + t.partly
	switch {
	case e.other == "":
	case wins == 0:
		e.lose("%s is Postfix's own", e.other)
		return
	default:
		e.differ(Narrower, "%s is Postfix's own, and not taken over; that nothing behind it in the table counts is kept", e.other)
	}
	switch {
	case t.losses == 0:
	case wins == 0:
		e.lose("it frees from nothing that is carried over, and here it would free from %s%s", t.first.Place, more(t.losses))
	default:
		e.differ(Wider, "here it frees from %s too%s", t.first.Place, more(t.losses))
		// A client's entry that a sender's exception frees from is not marked: any of
		// one kind would mark all of the other, and the exception says it.
		for _, b := range t.lost {
			if p.freed[b]++; p.freed[b] <= maxSaid {
				b.differ(Narrower, "not for whom %s lets pass", e.Place)
			}
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
