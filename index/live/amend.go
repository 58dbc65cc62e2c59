package live

import (
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
)

// Question is what an index was asked about. A zero part was not asked about.
type Question struct {
	Sender addr.Addr
	Domain addr.Key // the domain that all its senders share
	Client netip.Addr
}

// Amend replaces, in the matches that ix has for q, those of the list of live entries by the
// entries in force now, each before what is as specific. The table is the one that Match.Row
// points into: that of ix, with one row more if a live entry is among the matches.
//
// It allocates nothing if no live entry matches. A nil Set has none.
func (s *Set) Amend(matches []index.Match, ix *index.Index, q Question, now time.Time) (_ []index.Match, table []index.ListInfo) {
	table = ix.Lists()
	if s == nil {
		return matches, table
	}
	v := s.view.Load()
	l, search := v.lookupIn(ix.Generation())
	if !search && len(matches) == 0 {
		return matches, table
	}
	var room [8]*Entry
	found := room[:0]
	if search {
		found = l.search(found, q)
	}
	folded := 0
	for i := range matches {
		if table[matches[i].Row].Source.List != ListName {
			continue
		}
		folded++
		e := v.get(identityOf(&matches[i]))
		if e != nil && !slices.ContainsFunc(found, func(f *Entry) bool { return f.Number == e.Number }) {
			found = append(found, e)
		}
	}
	seconds := s.seconds(now)
	found = slices.DeleteFunc(found, func(e *Entry) bool { return e.expired(seconds) })
	if folded == 0 && len(found) == 0 {
		return matches, table
	}
	amended := make([]index.Match, 0, len(matches)-folded+len(found))
	for _, e := range found {
		amended = append(amended, e.match(len(table)))
	}
	for i := range matches {
		if table[matches[i].Row].Source.List != ListName {
			amended = append(amended, matches[i])
		}
	}
	slices.SortStableFunc(amended, func(a, b index.Match) int { return a.Distance() - b.Distance() })
	if v.generation == ix.Generation() {
		return amended, v.lists
	}
	return amended, withRow(table, s.folder)
}

// search appends the entries that cover q.
func (l *lookup) search(found []*Entry, q Question) []*Entry {
	if !q.Sender.Null() {
		found = l.sender(found, q.Sender)
	}
	if q.Domain.Text != "" {
		var room [addr.MaxKeys]addr.Key
		found = l.names(found, q.Domain.AndParents(room[:0]))
	}
	if q.Client.IsValid() {
		found = l.client(found, q.Client.WithZone("").Unmap())
	}
	return found
}

// usualKeys is the number of keys of an address whose domain has ten labels.
const usualKeys = 12

func (l *lookup) sender(found []*Entry, a addr.Addr) []*Entry {
	if !l.has(addr.Domain) && !l.has(addr.Local) {
		if k, ok := a.Key(); ok && l.has(addr.Address) {
			found = l.find(found, k.Text)
		}
		return found
	}
	if strings.Count(a.Domain(), ".") > usualKeys-3 {
		var room [addr.MaxKeys]addr.Key
		return l.names(found, a.Keys(room[:0]))
	}
	var room [usualKeys]addr.Key
	return l.names(found, a.Keys(room[:0]))
}

// names appends the entries for the keys of a sender, or of a domain and its parents, whose
// scope covers it.
func (l *lookup) names(found []*Entry, keys []addr.Key) []*Entry {
	own := true // the first domain is the sender's own
	for _, k := range keys {
		if l.has(k.Kind) {
			from := len(found)
			found = l.find(found, k.Text)
			covering := slices.DeleteFunc(found[from:], func(e *Entry) bool {
				return k.Kind == addr.Domain && e.Item.Scope != lists.Tree && own != (e.Item.Scope == lists.Exact)
			})
			found = found[:from+len(covering)]
		}
		own = own && k.Kind != addr.Domain
	}
	return found
}

func (l *lookup) client(found []*Entry, ip netip.Addr) []*Entry {
	for w := range len(prefixLengths{}) {
		for word := l.prefixes(family(ip), w); word != 0; word &= word - 1 {
			p, err := ip.Prefix(w*64 + bits.TrailingZeros64(word))
			if err != nil {
				continue
			}
			var key [netKey]byte
			found = l.find(found, string(appendNet(key[:0], p)))
		}
	}
	return found
}

// match returns the entry as an index would.
func (e *Entry) match(row int) index.Match {
	return index.Match{Row: row, Kind: e.Item.Kind, Key: e.Item.Key, Net: e.Item.Net, Scope: e.Item.Scope,
		Action: e.Item.Action, NeedsProof: e.NeedsProof, Line: int(e.Revision()), Reason: e.reason}
}

// identityOf returns the identity of a match's entry.
func identityOf(m *index.Match) identity {
	return identity{keyOf(&lists.Item{Kind: m.Kind, Key: m.Key, Net: m.Net}), m.Scope}
}

// withRow returns table with a row for live entries at its end.
func withRow(table []index.ListInfo, folder string) []index.ListInfo {
	return append(table[:len(table):len(table)], index.ListInfo{
		Source:  index.Source{List: ListName, Path: folder, Exceptions: index.AllExceptions},
		Summary: lists.Summary{Verdict: lists.Loaded},
	})
}
