package reload

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"blockd/index"
	"blockd/index/kept"
	"blockd/lists"
)

// propose finds what the files of pinned lists hold that does not serve. A newer content takes the place of the one that waited.
func (r *Reloader) propose(ctx context.Context, v *view) {
	byName := listsByName(r.settings.Lists)
	changed := map[string]kept.Pin{}
	faulty := map[string]string{}
	for list, pin := range r.pins {
		next, err := r.proposalOf(ctx, v, byName[list], pin)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			faulty[list] = err.Error()
			if r.faulty[list] != err.Error() {
				r.log.Error("a held list has nothing good to adopt", slog.String("list", list), slog.Any("error", err))
			}
			continue
		}
		if next != nil {
			changed[list] = *next
		}
	}
	r.faulty = faulty
	if len(changed) == 0 {
		return
	}
	r.changePins(func(all []kept.Pin) []kept.Pin {
		for i, p := range all {
			if next, ok := changed[p.List]; ok && p.Content.Equal(r.pins[p.List].Content) && p.Since.Equal(next.Since) {
				all[i] = next
			}
		}
		return all
	})
	before, acts := maps.Clone(r.pins), maps.Clone(r.acts)
	r.readPins()
	for list, next := range changed {
		now := r.pins[list]
		if delete(r.acts, list); acts[list] != "" { // nobody has done anything but this
			r.acts[list] = acts[list]
		}
		if p := before[list].Proposal; next.Proposal != nil && (p == nil || !p.Content.Equal(next.Proposal.Content)) {
			r.log.Warn("list has a proposal", slog.String("list", list), slog.String("content", next.Proposal.Content.ID()), slog.String("changes", next.Proposal.Counted()),
				slog.String("hint", "see blockd diff "+list+"; blockd adopt "+list+" lets it in"))
		}
		if !now.Content.Equal(before[list].Content) { // taken up by itself
			r.repin(v, byName[list], now)
		}
	}
}

// repin gives the sources of one list another content.
func (r *Reloader) repin(v *view, l List, pin kept.Pin) {
	at := slices.IndexFunc(v.sources, func(s index.Source) bool { return s.List == l.Name })
	if at < 0 {
		at = len(v.sources)
	}
	var w view
	w.proposed = map[string]proposed{}
	only := &Reloader{settings: r.settings, pins: map[string]kept.Pin{l.Name: pin}}
	only.settings.Lists = []List{l}
	only.effective(&w, nil, nil, nil)
	v.sources = slices.DeleteFunc(v.sources, func(s index.Source) bool { return s.List == l.Name })
	v.contents = slices.DeleteFunc(v.contents, func(c content) bool { return c.list == l.Name })
	v.sources, v.contents = slices.Insert(v.sources, at, w.sources...), slices.Insert(v.contents, at, w.contents...)
}

// proposalOf returns the pin of a list with what its files propose now; nil if that is as before.
func (r *Reloader) proposalOf(ctx context.Context, v *view, l List, pin kept.Pin) (*kept.Pin, error) {
	p := v.proposed[l.Name]
	for _, f := range p.faults {
		if !l.Named || f.path == l.Path {
			return nil, f.err
		}
	}
	var c kept.Content
	var findings []string
	for i, s := range p.sources {
		hash := p.contents[i].hash
		f := kept.File{Path: []byte(s.Path), Hash: hex.EncodeToString(hash[:]), Segment: kept.SegmentOf(hash, s.Settings)}
		has := hash != [16]byte{}
		if l.Named && (!has || r.claim(ctx, f.Segment, p, s.Path) != nil) { // the files of other owners wait all the same
			findings = append(findings, fmt.Sprintf("%s stays as it was: it cannot be read", s.Path))
			at := slices.IndexFunc(pin.Content, func(had kept.File) bool { return string(had.Path) == s.Path })
			if has = at >= 0; has {
				f = pin.Content[at]
			}
		}
		if has {
			c = append(c, f)
		}
	}
	switch {
	case c.Equal(pin.Content) && !(pin.Waits && len(c) > 0):
		if pin.Proposal == nil {
			return nil, nil
		}
		pin.Proposal = nil
		return &pin, nil
	case pin.Proposal != nil && pin.Proposal.Content.Equal(c):
		if w := pin.Proposal.Weighed; r.live.Load() == nil || w != nil && (w.Failed == "" || time.Since(w.Time).Abs() < weighAgain) {
			return nil, nil
		}
		same, was := *pin.Proposal, pin.Proposal.Weighed
		pin.Proposal = &same
		if err := r.weigh(ctx, v, l, pin.Proposal); err != nil || was == nil && same.Weighed == nil {
			return nil, err
		}
		return &pin, nil
	}
	store := r.settings.Kept
	next := kept.Proposal{Since: time.Now().UTC().Truncate(time.Second), Findings: findings}
	next.First = next.Since
	if pin.Proposal != nil {
		next.First = pin.Proposal.Waiting()
	}
	for i := range c {
		if err := r.claim(ctx, c[i].Segment, p, string(c[i].Path)); err != nil {
			return nil, err
		}
		summary, err := store.Summary(c[i])
		if err != nil {
			return nil, err
		}
		c[i].Entries = summary.Entries
		if n := summary.Dropped.Total(); n > 0 {
			next.Findings = append(next.Findings, fmt.Sprintf("%s: lines that are refused: %d (%s)", c[i].Path, n, &summary.Dropped))
		}
	}
	next.Content = c
	if !pin.Waits {
		if e := l.compare(pin.Content.Entries(), c.Entries()); e != nil {
			next.Findings = append(next.Findings, e.Err.Error())
		}
	}
	count, err := store.Count(ctx, pin.Content, c)
	if err != nil {
		return nil, err
	}
	next.Added, next.Removed = &count.Added, &count.Removed
	if count.Same && pin.How == kept.Review && !pin.Waits {
		pin.Content, pin.Proposal = c, nil // nobody is refused or let in by what has changed
		return &pin, nil
	}
	pin.Proposal = &next
	return &pin, r.weigh(ctx, v, l, &next)
}

// claim keeps what a file holds that has just been read, and reads it if need be.
func (r *Reloader) claim(ctx context.Context, segment string, p proposed, path string) error {
	store := r.settings.Kept
	if store.Has(kept.Content{{Segment: segment}}) {
		return nil
	}
	if store.Claim(r.cache(), segment) == nil {
		return nil
	}
	i := slices.IndexFunc(p.sources, func(s index.Source) bool { return s.Path == path })
	parse := r.settings.Parse
	if parse == nil {
		parse = func(ctx context.Context, cache string, s index.Source) error {
			return index.ParseSegment(ctx, cache, s, 0)
		}
	}
	if err := parse(ctx, r.cache(), p.sources[i]); err != nil {
		return err
	}
	if err := store.Claim(r.cache(), segment); err != nil {
		return fmt.Errorf("%s: %w", path, errors.Join(lists.ErrChanged, err)) // the next look reads it again
	}
	return nil
}

// Pinned waits until what a list is pinned to serves, or what its file has where it is not pinned, or says why it does not.
func (r *Reloader) Pinned(ctx context.Context, list string) error {
	asked := time.Now()
	r.Replaced()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s := r.Status()
		i := slices.IndexFunc(s.Pins, func(p kept.Pin) bool { return p.List == list })
		pins, err := r.settings.Kept.Pins()
		if err != nil {
			return err
		}
		k := slices.IndexFunc(pins, func(p kept.Pin) bool { return p.List == list })
		if k < 0 && i < 0 && !s.Looked.Before(asked) { // what the file has was looked at
			if at := slices.IndexFunc(s.Refusals, func(r Refusal) bool { return r.List == list }); at >= 0 {
				return errors.New("it does not serve: " + told(s.Refusals[at].Text, s.Refusals[at].Command))
			}
			return nil
		}
		if k >= 0 && i >= 0 && pins[k].Content.Equal(s.Pins[i].Content) && serves(s.Files, pins[k]) {
			return nil
		}
		select {
		case <-ctx.Done():
			if len(s.Problems) > 0 {
				return fmt.Errorf("it does not serve yet: %s", s.Problems[0])
			}
			return errors.New("it does not serve yet; /readyz says when it does")
		case <-tick.C:
		}
	}
}

// serves reports whether the rows of a list are those of a pin.
func serves(table []index.ListInfo, pin kept.Pin) bool {
	var now []string
	for _, row := range table {
		if row.Source.List == pin.List && row.Summary.Verdict == lists.Loaded {
			now = append(now, hex.EncodeToString(row.Summary.Hash[:])+row.Source.Path)
		}
	}
	var want []string
	for _, f := range pin.Content {
		want = append(want, f.Hash+string(f.Path))
	}
	return slices.Equal(now, want)
}
