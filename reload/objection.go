package reload

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/lists"
)

// What a load would do to those who wrote lately.
const (
	// writersFrom is from how many domains on a share of them says something: of 100
	// the usual bound of 1 % is one domain.
	writersFrom = 100

	// maxHeldShare is the share beyond which entries are not held back: the list is
	// another one, or somebody else's.
	maxHeldShare = 0.1

	// shownExamples bounds what of senders and entries is named.
	shownExamples = 3
)

// objection is what those who wrote lately say against one list.
type objection struct {
	list    string
	path    string  // of the first entry
	domains int     // of which a sender would be refused
	share   float64 // of all domains, or of the days on which they wrote; the smaller
	of      int     // domains
	who     []string
	entries map[index.HeldEntry]*objected
}

// objected is one entry that is objected to.
type objected struct {
	senders int
	example string
	line    int
	served  bool // before, too: only an exception has gone
}

// objections asks a draft about everybody who wrote lately. To refuse somebody who wrote
// a minute ago is what lists are for; to refuse one in a hundred of all is not. It returns
// what is said against lists that would newly refuse more than they may, in the order of
// configuration.
//
// A domain of which several senders are known speaks by the share of them that would be
// refused. A list is judged by the smaller of two shares: of the domains, so that one that
// writes daily is not a crowd, and of the days on which they wrote, so that a crowd of one
// day is not everybody.
func (r *Reloader) objections(draft *index.Index) (all []*objection) {
	writers := r.settings.Recent.writers()
	serving := r.live.Load()
	if serving == nil || r.settings.Blocks == nil || len(writers) < writersFrom {
		return nil
	}
	table := draft.Lists()
	found := map[string]*objection{}
	type voice struct{ domains, days float64 }
	voices, days := map[string]voice{}, 0
	for _, w := range writers {
		days += w.days
		refused := map[string]int{}
		for i := range w.senders {
			s := &w.senders[i]
			matches := r.settings.Blocks(draft, s.address, s.client)
			if len(matches) == 0 || len(r.settings.Blocks(serving, s.address, s.client)) > 0 {
				continue
			}
			var before map[index.HeldEntry]bool
			told := map[string]bool{}
			for _, m := range matches {
				source := &table[m.Row].Source
				o := found[source.List]
				if o == nil {
					o = &objection{list: source.List, path: source.Path, of: len(writers), entries: map[index.HeldEntry]*objected{}}
					found[source.List] = o
				}
				if !told[source.List] {
					told[source.List] = true
					if refused[source.List]++; len(o.who) < shownExamples {
						o.who = append(o.who, s.address.String())
					}
				}
				if before == nil {
					before = entriesFor(serving, s)
				}
				key := index.HeldEntry{List: source.List, Kind: m.Kind, Scope: m.Scope, Name: strings.Clone(m.Name())}
				e := o.entries[key]
				if e == nil {
					e = &objected{example: s.address.String(), line: m.Line, served: before[key]}
					o.entries[key] = e
				}
				e.senders++
			}
		}
		for list, n := range refused {
			part := float64(n) / float64(len(w.senders))
			v := voices[list]
			voices[list] = voice{v.domains + part, v.days + part*float64(w.days)}
			found[list].domains++
		}
	}
	for _, l := range r.settings.Lists {
		o, v := found[l.Name], voices[l.Name]
		if o == nil {
			continue
		}
		const rounding = 1e-9
		if o.share = min(v.domains/float64(len(writers)), v.days/float64(days)); o.share > l.MaxRecentBlocked+rounding {
			all = append(all, o)
		}
	}
	return all
}

// entriesFor are the entries of ix that cover a sender or its client and block.
func entriesFor(ix *index.Index, s *sender) map[index.HeldEntry]bool {
	all := map[index.HeldEntry]bool{}
	matches, err := ix.Lookup(nil, s.address, time.Now())
	if err == nil {
		matches, err = ix.LookupClient(matches, s.client, time.Now())
	}
	if err != nil {
		return all
	}
	for _, m := range matches {
		if !m.Action.Allows() {
			all[index.HeldEntry{List: ix.Lists()[m.Row].Source.List, Kind: m.Kind, Scope: m.Scope, Name: strings.Clone(m.Name())}] = true
		}
	}
	return all
}

// holdEntries holds back what those who wrote lately object to, beside what of before
// draft has, and returns all that is held in draft then. odd are the lists that are not to serve at all: more than a tenth
// speak against them, or what refuses them served before, and an exception has gone.
// Of lists in accepted nothing more is held.
func (r *Reloader) holdEntries(draft *index.Index, before heldEntries, accepted func(list string) bool) (held heldEntries, odd []problem) {
	held = before.in(draft)
	for {
		draft.Withhold(held.set())
		more := false
		for _, o := range r.objections(draft) {
			switch {
			case accepted(o.list):
			case o.share > maxHeldShare || !o.hold(held):
				odd = append(odd, o.problem())
			default:
				more = true
			}
		}
		if !more || len(odd) > 0 {
			return held, odd
		}
	}
}

// hold adds the entries that are objected to, and reports whether there is one that is
// not held yet. An entry that served before stays in service.
func (o *objection) hold(held heldEntries) (more bool) {
	for key, e := range o.entries {
		if _, known := held[key]; !known && !e.served {
			held[key] = heldSince{Since: time.Now().UTC().Truncate(time.Second), Senders: e.senders, Example: e.example}
			more = true
		}
	}
	return more
}

// problem is why the list does not serve at all.
func (o *objection) problem() problem {
	than := "a tenth"
	if o.share <= maxHeldShare {
		than = "max_recent_blocked"
	}
	return fileProblem(o.list, o.path, &lists.FileError{Path: o.path, Class: lists.Recent,
		Err: fmt.Errorf("would refuse %d of the %d senders accepted lately, more than %s of them: %s; by %s",
			o.domains, o.of, than, strings.Join(o.who, ", "), o.shownEntries())})
}

// shownEntries names the entries that refuse most.
func (o *objection) shownEntries() string {
	all := slices.SortedFunc(maps.Keys(o.entries), func(a, b index.HeldEntry) int {
		x, y := o.entries[a], o.entries[b]
		return cmp.Or(cmp.Compare(y.senders, x.senders), cmp.Compare(x.line, y.line), strings.Compare(a.Name, b.Name))
	})
	more, text := "", make([]string, 0, shownExamples)
	if n := len(all) - shownExamples; n > 0 {
		all, more = all[:shownExamples], fmt.Sprintf(" and %d more entries", n)
	}
	for _, e := range all {
		text = append(text, fmt.Sprintf("%s (line %d)", e.Name, o.entries[e].line))
	}
	return strings.Join(text, ", ") + more
}

// tellHeld logs what is held in g that was not held before, a line for each list, and how
// many entries are held no more.
func (r *Reloader) tellHeld(g *generation) {
	type news struct {
		entries, senders int
		first            []string
	}
	found, gone := map[string]*news{}, map[string]int{}
	for _, e := range g.withheld.sorted() {
		if _, known := r.held[e.HeldEntry]; known {
			continue
		}
		n := found[e.List]
		if n == nil {
			n = &news{}
			found[e.List] = n
		}
		n.entries++
		n.senders += e.Senders
		if len(n.first) < shownExamples {
			n.first = append(n.first, fmt.Sprintf("%s for %s", e.Name, e.Example))
		}
	}
	for e := range r.held {
		if _, still := g.withheld[e]; !still {
			gone[e.List]++
		}
	}
	for _, list := range slices.Sorted(maps.Keys(found)) {
		n := found[list]
		r.log.Warn("entries held back", slog.String("list", list), slog.Int("entries", n.entries), slog.Int("senders", n.senders),
			slog.String("first", strings.Join(n.first, ", ")),
			slog.String("reason", "they would refuse senders who wrote lately, more of them than max_recent_blocked"),
			slog.String("hint", "see blockd lint --held "+list+"; blockd compile --accept "+list+" lets them in"))
	}
	for _, list := range slices.Sorted(maps.Keys(gone)) {
		r.log.Info("entries no longer held back", slog.String("list", list), slog.Int("entries", gone[list]))
	}
}

// HeldRemarks are a line for each list of which entries are held back, of which held has
// the numbers.
func HeldRemarks(held map[string]int) (lines []string) {
	for _, list := range slices.Sorted(maps.Keys(held)) {
		lines = append(lines, fmt.Sprintf("list %s: %d held back: they would refuse senders who wrote lately; see blockd lint --held %s",
			list, held[list], list))
	}
	return lines
}
