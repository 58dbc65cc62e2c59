package reload

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
)

// Whom the users of this server write to speaks against a load by a single address: an entry that would refuse a
// correspondent is held back, whatever share of all senders that is. Correspondents are known by hashes alone, so it is
// the entries that are asked for, and not the correspondents: the names of all new entries are hashed. A pattern or a
// network tells no hash; these are asked about the senders accepted lately that are correspondents.

// mostHeldForCorrespondents is how many entries of a list are held back for correspondents. A list with more of them is not one of senders
// that nobody wants mail from.
const mostHeldForCorrespondents = 10_000

// addHeldForCorrespondents adds to held the entries of draft that would newly refuse correspondents. It returns why lists must not serve at
// all. Of lists that accepted names, and of those that people write entry by entry, nothing is held.
func (r *Reloader) addHeldForCorrespondents(draft *index.Index, held heldEntries, accepted func(list string) bool) (odd []problem) {
	if r.settings.Correspondents.Len() == 0 || r.settings.Blocks == nil {
		return nil
	}
	p := plea{Reloader: r, draft: draft, serving: r.live.Load(), held: held, by: map[string]*pleaded{}, pardoned: map[string]bool{}}
	for _, l := range r.settings.Lists {
		p.pardoned[l.Name] = l.Own || accepted(l.Name)
	}
	began := time.Now()
	for e, err := range draft.Named(context.Background(), p.serving, r.settings.Correspondents.Known) {
		if err != nil {
			r.log.Error("entries are not compared with correspondents", slog.Any("error", err))
			break
		}
		p.name(&e)
	}
	for _, w := range r.settings.Recent.writers() {
		for i := range w.senders {
			if s := &w.senders[i]; r.settings.Correspondents.Has(s.address) {
				p.sender(s.address, s.client, 1, "")
			}
		}
	}
	r.log.Debug("entries compared with correspondents", slog.Duration("took", time.Since(began)))
	return p.end()
}

// plea collects the entries that would refuse correspondents.
type plea struct {
	*Reloader
	draft, serving *index.Index
	held           heldEntries
	by             map[string]*pleaded // by list
	pardoned       map[string]bool     // lists whose entries are not held
}

type pleaded struct {
	path    string
	entries []HeldEntry
	lines   map[index.HeldEntry]int
}

// name looks at an entry whose name is that of a correspondent, as is their domain or local-part.
func (p *plea) name(e *index.Entry) {
	if e.Item.Action.Allows() {
		return
	}
	name := e.Item.Name()
	n := p.settings.Correspondents.Covered(e.Item.Kind, e.Item.Scope, name)
	if n == 0 {
		return
	}
	// The entry is judged by somebody whom it covers: an exception may free that one from it.
	switch {
	case e.Item.Kind == lists.Domain && e.Item.Scope == lists.Sub:
		name = "correspondent@mail." + name
	case e.Item.Kind == lists.Domain:
		name = "correspondent@" + name
	case e.Item.Scope == lists.Local:
		name += "correspondent.invalid"
	}
	if sender, err := addr.Parse(name); err == nil {
		p.sender(sender, netip.Addr{}, n, e.Item.Name())
	}
}

// sender holds back the entries that would newly refuse a sender: those of one name, or all of them with "".
func (p *plea) sender(a addr.Addr, client netip.Addr, n int, only string) {
	matches := p.settings.Blocks(p.draft, a, client)
	if len(matches) == 0 || p.serving != nil && len(p.settings.Blocks(p.serving, a, client)) > 0 {
		return
	}
	var before map[index.HeldEntry]bool
	if p.serving != nil {
		before = entriesFor(p.serving, &sender{address: a, client: client})
	}
	for i := range matches {
		m := &matches[i]
		key := heldEntry(p.draft, m)
		_, known := p.held[key]
		if known || before[key] || p.pardoned[key.List] || only != "" && m.Name() != only {
			continue
		}
		l := p.by[key.List]
		if l == nil {
			l = &pleaded{path: p.draft.Lists()[m.Row].Source.Path, lines: map[index.HeldEntry]int{}}
			p.by[key.List] = l
		}
		if l.lines[key] == 0 && len(l.entries) <= mostHeldForCorrespondents {
			l.lines[key] = m.Line
			l.entries = append(l.entries, HeldEntry{HeldEntry: key, Since: time.Now().UTC().Truncate(time.Second), Senders: n, Correspondent: true})
		}
	}
}

// end adds what was found to held.
func (p *plea) end() (odd []problem) {
	for _, list := range p.settings.Lists {
		l := p.by[list.Name]
		if l == nil {
			continue
		}
		slices.SortStableFunc(l.entries, func(a, b HeldEntry) int { return b.Senders - a.Senders })
		if len(l.entries) > mostHeldForCorrespondents {
			var first []string
			for _, e := range l.entries[:shownExamples] {
				first = append(first, fmt.Sprintf("%s (line %d)", e.Name, l.lines[e.HeldEntry]))
			}
			odd = append(odd, fileProblem(list.Name, l.path, &lists.FileError{Path: l.path, Class: lists.Correspondents,
				Err: fmt.Errorf("more than %d of its entries would refuse correspondents: users of this server write to them; %s and more",
					mostHeldForCorrespondents, strings.Join(first, ", "))}))
			continue
		}
		for _, e := range l.entries {
			p.held[e.HeldEntry] = e
		}
	}
	return odd
}
