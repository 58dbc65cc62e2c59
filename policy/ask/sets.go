package ask

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"blockd/bloom"
	"blockd/index"
	"blockd/mail/addr"
	"blockd/policy/verdict"
	"blockd/sources/mirror"
)

// Sets are all lists that are asked. Nil has none.
type Sets struct {
	all   []*Set
	order map[string]int // place of each list in the configuration, from 1; 0: of live entries
}

// NewSets takes the lists together. names are those of all lists, asked or not, in the order in which they decide
// between equally specific entries.
func NewSets(all []*Set, names []string) *Sets {
	if len(all) == 0 {
		return nil
	}
	s := &Sets{all: all, order: map[string]int{}}
	for i, name := range names {
		s.order[name] = i + 1
	}
	return s
}

// All are the lists.
func (s *Sets) All() []*Set {
	if s == nil {
		return nil
	}
	return s.all
}

// usualKeys is the number of keys of an address whose domain has ten labels.
const usualKeys = 12

// Begin asks the filters about a sender, or about the domain that senders share, and where they say "perhaps" it begins
// to ask the stores. It does not wait, and returns nil if there is nothing to wait for: no list perhaps has the
// sender. It allocates nothing then.
func (s *Sets) Begin(sender addr.Addr, domain addr.Key, source verdict.Source) *Inquiry {
	if s == nil {
		return nil
	}
	var q *Inquiry
	if !sender.Null() {
		if strings.Count(sender.Domain(), ".") > usualKeys-3 {
			var room [addr.MaxKeys]addr.Key
			q = s.filter(q, sender.Keys(room[:0]), source)
		} else {
			var room [usualKeys]addr.Key
			q = s.filter(q, sender.Keys(room[:0]), source)
		}
	}
	if domain.Text != "" {
		var room [addr.MaxKeys]addr.Key
		q = s.filter(q, domain.AndParents(room[:0]), source)
	}
	if q != nil {
		q.begin()
	}
	return q
}

// filter notes in q, which it makes if need be, the keys that lists perhaps have.
func (s *Sets) filter(q *Inquiry, keys []addr.Key, source verdict.Source) *Inquiry {
	for _, set := range s.all {
		if !set.Match.Has(source) {
			continue
		}
		for at := 0; at < len(keys); at += bloom.BatchSize {
			perhaps, ok := set.perhaps(keys[at:min(at+bloom.BatchSize, len(keys))])
			if ok && perhaps == 0 {
				continue
			}
			if q == nil {
				q = &Inquiry{sets: s}
			}
			p := q.part(set)
			if !ok {
				p.err = ErrNoFilter
				break
			}
			p.suspect(keys, at, perhaps)
		}
	}
	return q
}

// Inquiry is a question about one sender that the stores of some lists are asked. It is for one goroutine.
type Inquiry struct {
	sets  *Sets
	parts []part
}

// part is the question to one list.
type part struct {
	set   *Set
	texts []string       // the entries that would cover the sender
	known [][]mirror.Row // of each text
	open  []string       // those that are not known yet
	reply <-chan singleflight.Result
	until time.Time
	err   error // why it has not been asked
}

func (q *Inquiry) part(set *Set) *part {
	for i := range q.parts {
		if q.parts[i].set == set {
			return &q.parts[i]
		}
	}
	q.parts = append(q.parts, part{set: set})
	return &q.parts[len(q.parts)-1]
}

// suspect notes the entries for the keys that a filter perhaps has, by a bit for each from the place at on.
func (p *part) suspect(keys []addr.Key, at int, perhaps uint32) {
	own := slices.IndexFunc(keys, func(k addr.Key) bool { return k.Kind == addr.Domain }) // the first is the sender's own
	for ; perhaps != 0; perhaps &= perhaps - 1 {
		i := at + bits.TrailingZeros32(perhaps)
		p.texts = spellings(p.texts, keys[i], i == own)
	}
}

// begin takes what the caches have, and asks for the rest.
func (q *Inquiry) begin() {
	for i := range q.parts {
		p := &q.parts[i]
		p.known = make([][]mirror.Row, len(p.texts))
		for j, text := range p.texts {
			rows, ok := p.set.cache.GetIfPresent(text)
			if ok {
				p.known[j] = rows
				p.set.cached.Add(1)
			} else if !slices.Contains(p.open, text) {
				p.open = append(p.open, text)
			}
		}
		switch {
		case p.err != nil:
			p.set.count(p.err)
		case len(p.open) == 0:
		case p.set.resting():
			p.err = ErrPaused
			p.set.count(p.err)
		default:
			p.until = time.Now().Add(p.set.Timeout)
			p.reply = p.set.ask(p.open)
		}
	}
}

// Ready reports whether Amend would not wait.
func (q *Inquiry) Ready() bool {
	for i := range q.parts {
		p := &q.parts[i]
		if p.reply == nil {
			continue
		}
		select {
		case r := <-p.reply:
			p.take(r)
		default:
			return false
		}
	}
	return true
}

// take takes the answer of the store in.
func (p *part) take(r singleflight.Result) {
	p.reply = nil
	found, ok := r.Val.(map[string][]mirror.Row)
	if p.err = r.Err; !ok || p.err != nil {
		return
	}
	for i, text := range p.texts {
		if rows, ok := found[text]; ok {
			p.known[i] = rows
		}
	}
}

// wait waits for the store, for as long as the list's timeout lasts since Begin.
func (p *part) wait(ctx context.Context) {
	if p.reply == nil {
		return
	}
	timer := time.NewTimer(time.Until(p.until))
	defer timer.Stop()
	select {
	case r := <-p.reply:
		p.take(r)
	case <-timer.C:
		p.reply, p.err = nil, ErrTimeout
	case <-ctx.Done():
		p.reply, p.err = nil, ErrTimeout
	}
}

// Amend waits for the answers, and adds the entries that the stores have to matches, in their order; table grows by the rows of
// lists that it does not have. unasked are the lists that have not answered.
func (q *Inquiry) Amend(ctx context.Context, matches []index.Match, table []index.ListInfo, now time.Time) (_ []index.Match, _ []index.ListInfo, unasked []verdict.Unasked) {
	for i := range q.parts {
		p := &q.parts[i]
		p.wait(ctx)
		row, before := len(table), len(matches)
		for _, rows := range p.known {
			matches = p.set.matches(matches, row, rows, now)
		}
		if p.err != nil {
			unasked = append(unasked, verdict.Unasked{Row: row, Defers: p.set.Defers, Allows: p.set.mayAllow(), Faint: p.err == ErrNoFilter,
				Err: fmt.Errorf("%w: %s: %w", verdict.ErrUnasked, p.set.Source.List, p.err)})
		}
		if len(matches) > before || p.err != nil {
			table = append(table[:len(table):len(table)], p.set.info)
		}
	}
	slices.SortStableFunc(matches, func(a, b index.Match) int {
		return cmp.Or(a.Distance()-b.Distance(), q.sets.order[table[a.Row].Source.List]-q.sets.order[table[b.Row].Source.List])
	})
	return matches, table, unasked
}
