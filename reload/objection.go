package reload

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
)

const (
	// writersFrom is the number of domains from which on a share of them says something:
	// of 100 the usual bound of 1 % is one domain.
	writersFrom = 100

	// maxHeldShare is the share of objections beyond which entries are not held back: the
	// whole list has been replaced by another one.
	maxHeldShare = 0.1

	// shownExamples bounds how many senders and entries a message names.
	shownExamples = 3
)

// objection is what the senders accepted lately say against one list.
type objection struct {
	list    string
	path    string // of the first entry
	domains int    // with a sender that would be refused
	of      int    // domains
	who     []string
	entries map[index.HeldEntry]*objected

	voices, days float64 // of the domains, each by the share of its senders, and of their days
	share        float64 // of all domains, or of all days; the smaller
}

// objected is one entry that is objected to.
type objected struct {
	senders int
	example string
	line    int
	served  bool // before, too: only an exception has gone
}

// objections asks a draft about all senders accepted lately. Lists are meant to refuse one that
// wrote a minute ago, but not one in a hundred of all. It returns what is said against the lists
// that would newly refuse more than they may, in the order of configuration.
//
// A domain objects by the share of its known senders that would be refused. A list is judged by
// the smaller of two shares: of the domains, so that one domain that writes daily is not many,
// and of the days on which they wrote, so that many domains of one day are not everybody.
func (r *Reloader) objections(draft *index.Index) (all []*objection) {
	writers := r.settings.Recent.writers()
	h := hearing{blocks: r.settings.Blocks, draft: draft, serving: r.live.Load(), of: len(writers), against: map[string]*objection{}}
	if h.serving == nil || h.blocks == nil || len(writers) < writersFrom {
		return nil
	}
	days := 0
	for i := range writers {
		days += writers[i].days
		h.hear(&writers[i])
	}
	for _, l := range r.settings.Lists {
		const rounding = 1e-9
		if o := h.against[l.Name]; o != nil {
			o.share = min(o.voices/float64(len(writers)), o.days/float64(days))
			if o.share > l.MaxRecentBlocked+rounding {
				all = append(all, o)
			}
		}
	}
	return all
}

// hearing collects objections to a draft.
type hearing struct {
	blocks         func(*index.Index, addr.Addr, netip.Addr) []index.Match
	draft, serving *index.Index
	of             int                   // domains
	against        map[string]*objection // by list
}

// hear adds what one domain says.
func (h *hearing) hear(w *writer) {
	refused := map[string]int{} // senders, by list
	for i := range w.senders {
		for list := range h.ask(&w.senders[i]) {
			refused[list]++
		}
	}
	for list, n := range refused {
		o, part := h.against[list], float64(n)/float64(len(w.senders))
		o.domains++
		o.voices += part
		o.days += part * float64(w.days)
	}
}

// ask adds what one sender says, and returns the lists that would newly refuse it.
func (h *hearing) ask(s *sender) map[string]bool {
	matches := h.blocks(h.draft, s.address, s.client)
	if len(matches) == 0 || len(h.blocks(h.serving, s.address, s.client)) > 0 {
		return nil
	}
	before, by := entriesFor(h.serving, s), map[string]bool{}
	for i := range matches {
		m := &matches[i]
		source := &h.draft.Lists()[m.Row].Source
		o := h.against[source.List]
		if o == nil {
			o = &objection{list: source.List, path: source.Path, of: h.of, entries: map[index.HeldEntry]*objected{}}
			h.against[source.List] = o
		}
		if !by[source.List] && len(o.who) < shownExamples {
			o.who = append(o.who, s.address.String())
		}
		by[source.List] = true
		key := heldEntry(h.draft, m)
		if o.entries[key] == nil {
			o.entries[key] = &objected{example: s.address.String(), line: m.Line, served: before[key]}
		}
		o.entries[key].senders++
	}
	return by
}

// heldEntry is how the entry of a match is named when it is held back.
func heldEntry(ix *index.Index, m *index.Match) index.HeldEntry {
	return index.HeldEntry{List: ix.Lists()[m.Row].Source.List, Kind: m.Kind, Scope: m.Scope, Name: strings.Clone(m.Name())}
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
	for i := range matches {
		if !matches[i].Action.Allows() {
			all[heldEntry(ix, &matches[i])] = true
		}
	}
	return all
}

// holdEntries holds back in draft what is objected to, and what of before draft has. It
// returns all that is held then. odd are the lists that must not serve at all: more than a
// tenth of the domains object, or to an entry that served before, where only an exception
// has gone. Of lists that accepted names nothing more is held.
func (r *Reloader) holdEntries(draft *index.Index, before heldEntries, accepted func(list string) bool) (held heldEntries, odd []problem) {
	held = before.in(draft)
	draft.Withhold(held.set())
	if odd = r.addHeldForCorrespondents(draft, held, accepted); len(odd) > 0 {
		return held, odd
	}
	for {
		draft.Withhold(held.set())
		more := false
		for _, o := range r.objections(draft) {
			switch {
			case accepted(o.list):
			case r.isMeant(o.list): // an operator has let it in: what would refuse people is held back, and nothing more
				more = o.hold(held) || more
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

// hold adds the entries that are objected to, and reports whether it has added any. An entry
// that served before stays in service.
func (o *objection) hold(held heldEntries) (more bool) {
	for key, e := range o.entries {
		if _, known := held[key]; !known && !e.served {
			held[key] = HeldEntry{HeldEntry: key, Since: time.Now().UTC().Truncate(time.Second), Senders: e.senders, Example: e.example}
			more = true
		}
	}
	return more
}

// problem says why the list must not serve at all.
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
	var all []weighed
	for e, by := range o.entries {
		all = append(all, weighed{e.Name, by.line, float64(by.senders)})
	}
	return shownEntries(all)
}

// weighed is an entry with what it would change: senders, or refusals.
type weighed struct {
	name   string
	line   int
	weight float64
}

// shownEntries names the entries of the most weight.
func shownEntries(all []weighed) string {
	slices.SortFunc(all, func(a, b weighed) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.line, b.line), strings.Compare(a.name, b.name))
	})
	var text []string
	for _, e := range all[:min(len(all), shownExamples)] {
		text = append(text, fmt.Sprintf("%s (line %d)", e.name, e.line))
	}
	shown := strings.Join(text, ", ")
	if n := len(all) - shownExamples; n > 0 {
		shown += fmt.Sprintf(" and %d more entries", n)
	}
	return shown
}

// tellHeld logs the entries of g that were not held before, a line for each list, and how
// many entries are not held any more.
func (r *Reloader) tellHeld(g *generation) {
	news := g.withheld.minus(r.held)
	for _, list := range slices.Sorted(maps.Keys(news.counts())) {
		r.tellHeldOf(list, "recent", "they would refuse senders who wrote lately, more of them than max_recent_blocked",
			news.of(list, false))
		r.tellHeldOf(list, "correspondents", "they would refuse correspondents: users of this server write to them",
			news.of(list, true))
	}
	gone := r.held.minus(g.withheld).counts()
	for _, list := range slices.Sorted(maps.Keys(gone)) {
		r.log.Info("entries no longer held back", slog.String("list", list), slog.Int("entries", gone[list]))
	}
}

// tellHeldOf logs the entries of a list that are newly held for one reason.
func (r *Reloader) tellHeldOf(list, class, reason string, all []HeldEntry) {
	if len(all) == 0 {
		return
	}
	senders, first := 0, []string(nil)
	for i, e := range all {
		if senders += e.Senders; i < shownExamples {
			first = append(first, e.shown())
		}
	}
	r.log.Warn("entries held back", slog.String("list", list), slog.String("class", class), slog.Int("entries", len(all)), slog.Int("senders", senders),
		slog.String("first", strings.Join(first, ", ")), slog.String("reason", reason),
		slog.String("hint", "see blockd lint --held "+list+"; blockd compile --accept "+list+" lets them in"))
}

// heldRemarks returns a line for each list with entries that are held back.
func heldRemarks(held heldEntries) (lines []string) {
	for list, n := range held.counts() {
		why := "they would refuse senders who wrote lately"
		switch partners := len(held.of(list, true)); {
		case partners == n:
			why = "they would refuse correspondents, to whom users of this server write"
		case partners > 0:
			why += fmt.Sprintf(", and %d of them correspondents, to whom users of this server write", partners)
		}
		lines = append(lines, fmt.Sprintf("list %s: %d held back: %s; see blockd lint --held %s", list, n, why, list))
	}
	slices.Sort(lines)
	return lines
}
