package reload

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/index/kept"
	"blockd/internal/stamp"
	"blockd/internal/term"
	"blockd/lists"
)

// A list may be pinned to a content that is kept: an operator has taken it back, or lets in each load himself. Its files are
// watched as ever, and what they hold is a proposal. For everything below view a pinned list is one whose sources are
// segments and never change.

// watchPins is how often the file of pins is looked at: any process may write it.
const watchPins = 500 * time.Millisecond

// proposed is what the files of a pinned list hold.
type proposed struct {
	sources  []index.Source
	contents []content
	faults   []problem
}

// openPins reads the pins at the start. onDisk is what the index has; nil: there is none.
func (r *Reloader) openPins(onDisk *generation) {
	store := r.settings.Kept
	if store == nil {
		return
	}
	if _, err := store.Pins(); errors.Is(err, kept.ErrTorn) {
		r.recoverPins(onDisk, err)
	}
	r.readPins()
	r.acts = map[string]string{} // what serves already was meant
	for _, l := range r.settings.Lists {
		if _, pinned := r.pins[l.Name]; l.Review && !pinned {
			r.beginReview(l, onDisk)
		}
	}
	for list, pin := range r.pins {
		if l, ok := listsByName(r.settings.Lists)[list]; ok && !l.Review && pin.How == kept.Review {
			r.changePins(func(all []kept.Pin) []kept.Pin { return without(all, list) })
			r.log.Info("list follows its file again: adopt is \"at once\"", slog.String("list", list))
		}
	}
	r.readPins()
	r.acts = map[string]string{}
}

// recoverPins pins all lists to what served last, since the pins cannot be read: a list that was taken back must not
// come back by itself.
func (r *Reloader) recoverPins(onDisk *generation, damage error) {
	r.log.Error("which lists are held cannot be read: every list stays as it served last", slog.Any("error", damage),
		slog.String("hint", "blockd lists shows what waits; blockd adopt LIST lets a list follow its file again"))
	if err := r.settings.Kept.SetAside(); err != nil {
		r.log.Error("the damaged file stays", slog.Any("error", err))
		return
	}
	now := time.Now().UTC().Truncate(time.Second)
	r.changePins(func([]kept.Pin) (all []kept.Pin) {
		for _, l := range r.settings.Lists {
			if l.Own {
				continue
			}
			if c, served, ok := r.lastServed(l, onDisk); ok {
				all = append(all, kept.Pin{List: l.Name, Content: c, Served: served, Since: now, How: kept.Recovered, Why: "the pins could not be read"})
			}
		}
		return all
	})
}

// beginReview pins a list that is to be reviewed from now on: to what served last, else to nothing until it is adopted.
func (r *Reloader) beginReview(l List, onDisk *generation) {
	now := time.Now().UTC().Truncate(time.Second)
	pin := kept.Pin{List: l.Name, Served: now, Since: now, How: kept.Review}
	c, served, ok := r.lastServed(l, onDisk)
	if ok {
		pin.Content, pin.Served = c, served
	} else {
		pin.Waits = true
	}
	r.changePins(func(all []kept.Pin) []kept.Pin { return append(without(all, l.Name), pin) })
}

// lastServed is what a list held when it served last, and from when on. It is whole and on disk.
func (r *Reloader) lastServed(l List, onDisk *generation) (c kept.Content, served time.Time, ok bool) {
	store := r.settings.Kept
	if onDisk != nil {
		c, ok = r.contentOf(l, onDisk.ix.Lists(), nil)
		served = onDisk.ix.Built()
		for _, f := range c {
			if err := store.Claim(r.cache(), f.Segment); err != nil {
				ok = false
			}
		}
	}
	if all, err := store.Generations(); !ok && err == nil && len(all) > 0 {
		last := &all[len(all)-1]
		c, ok = last.Of(l.Name)
		served = last.Time
	}
	if !ok {
		return nil, served, false
	}
	if err := store.Unpack(context.Background(), c); err != nil {
		r.log.Error("what a list held is not kept", slog.String("list", l.Name), slog.Any("error", err))
		return nil, served, false
	}
	return c, served, true
}

func (r *Reloader) cache() string { return r.settings.Path + index.CacheSuffix }

func without(all []kept.Pin, list string) []kept.Pin {
	return slices.DeleteFunc(slices.Clone(all), func(p kept.Pin) bool { return p.List == list })
}

// changePins writes what change makes of the pins. What goes wrong is logged.
func (r *Reloader) changePins(change func([]kept.Pin) []kept.Pin) {
	err := r.settings.Kept.ChangePins(func(all []kept.Pin) ([]kept.Pin, error) { return change(all), nil })
	if err != nil {
		r.log.Error("which lists are held cannot be noted", slog.Any("error", err))
	}
}

func (r *Reloader) pinsMoved() bool {
	return r.settings.Kept != nil && !stamp.Same(r.settings.Kept.PinsStamp(), r.pinsStamp)
}

// readPins takes up what people have changed. While the file cannot be read, what it had goes on.
func (r *Reloader) readPins() {
	if !r.pinsMoved() {
		return
	}
	stamp := r.settings.Kept.PinsStamp()
	all, err := r.settings.Kept.Pins()
	r.pinsStamp = stamp
	if err != nil {
		r.log.Error("which lists are held cannot be read: those before stay so", slog.Any("error", err))
		r.tellPins(fmt.Sprintf("which lists are held cannot be read, and those before stay so: %v", err))
		return
	}
	r.tellPins("")
	now, known := map[string]kept.Pin{}, listsByName(r.settings.Lists)
	for _, p := range all {
		if _, ok := known[p.List]; ok {
			now[p.List] = p
		}
	}
	for list, is := range now {
		if was, ok := r.pins[list]; !ok || !was.Content.Equal(is.Content) || was.Waits != is.Waits {
			r.acts[list] = is.Act()
		}
	}
	for list := range r.pins {
		if _, still := now[list]; !still {
			r.acts[list] = kept.Adopt
		}
	}
	r.pins, r.decidedOn, r.failures = now, nil, 0
	r.showPins()
}

// tellPins says what is wrong with the pins; "": nothing is.
func (r *Reloader) tellPins(fault string) {
	r.mu.Lock()
	r.status.pinsFault = fault
	r.mu.Unlock()
}

func (r *Reloader) showPins() {
	var all []kept.Pin
	for _, list := range slices.Sorted(maps.Keys(r.pins)) {
		all = append(all, r.pins[list])
	}
	r.mu.Lock()
	r.status.Pins = all
	r.mu.Unlock()
}

// isMeant reports whether an operator has said what the list is to hold, on this machine or on all of a fleet: no
// size, age or share speaks against that.
func (r *Reloader) isMeant(list string) bool {
	if _, pinned := r.pins[list]; pinned || r.acts[list] != "" {
		return true
	}
	signed := listsByName(r.settings.Lists)[list].Signed
	return signed != nil && signed()
}

// effective makes of what the files hold what is to serve: pinned lists have their sources from what is kept.
func (r *Reloader) effective(v *view, actual []index.Source, now []content, faults []problem) {
	v.proposed = map[string]proposed{}
	for _, l := range r.settings.Lists {
		var p proposed
		for i, s := range actual {
			if s.List == l.Name {
				p.sources, p.contents = append(p.sources, s), append(p.contents, now[i])
			}
		}
		for _, f := range faults {
			if f.list == l.Name {
				p.faults = append(p.faults, f)
			}
		}
		pin, pinned := r.pins[l.Name]
		if !pinned {
			v.sources, v.contents, v.faults = append(v.sources, p.sources...), append(v.contents, p.contents...), append(v.faults, p.faults...)
			continue
		}
		v.proposed[l.Name] = p
		for _, f := range pin.Content {
			s := l.keptSource(f, r.settings.Kept)
			c := content{list: l.Name, path: s.Path, guard: s.Settings.Guard.ID()}
			hex.Decode(c.hash[:], []byte(f.Hash))
			v.sources, v.contents = append(v.sources, s), append(v.contents, c)
		}
	}
	for _, f := range faults {
		if f.list == "" {
			v.faults = append(v.faults, f)
		}
	}
}

// contentOf is what the rows of a list hold. ok is false where the list has no row, or one that was not read.
func (r *Reloader) contentOf(l List, table []index.ListInfo, lacks lacking) (c kept.Content, ok bool) {
	pin := r.pins[l.Name]
	for _, row := range table {
		if row.Source.List != l.Name || row.Summary.Verdict != lists.Loaded || lacks.has(fileOf(row)) {
			continue
		}
		f := kept.File{Path: []byte(row.Source.Path), Hash: hex.EncodeToString(row.Summary.Hash[:]), Entries: row.Entries()}
		f.Segment = kept.SegmentOf(row.Summary.Hash, l.source(row.Source.Path).Settings)
		for _, held := range pin.Content {
			if held.Hash == f.Hash && string(held.Path) == row.Source.Path {
				f.Segment = held.Segment
			}
		}
		c, ok = append(c, f), true
	}
	return c, ok
}

// record notes what serves now, so that a list can be taken back to it.
func (r *Reloader) record(g *generation, out outcome) {
	if r.settings.Kept == nil || r.following.Load() {
		return
	}
	now := kept.Generation{ID: g.ix.Generation(), Time: time.Now().UTC().Truncate(time.Millisecond), How: outcomes[out].swap}
	for _, how := range r.acts {
		now.How = how
	}
	for list := range r.acts {
		if p, ok := r.pins[list]; ok {
			now.By, now.Why = p.By, p.Why
		}
	}
	for _, l := range r.settings.Lists {
		c, _ := r.contentOf(l, g.ix.Lists(), g.lacks)
		s := kept.State{Name: l.Name, Entries: c.Entries(), Files: c}
		if l.Own { // it is not taken back, and what people have removed is to be in no file
			s.Files = nil
		}
		now.Lists = append(now.Lists, s)
	}
	for _, err := range r.settings.Kept.Record(r.cache(), now) {
		r.log.Warn("not all of what serves is kept", slog.Any("error", err), slog.String("hint", "blockd rollback cannot go back to it"))
	}
	r.acts = map[string]string{}
	r.askTidy()
}

func (r *Reloader) askTidy() {
	select {
	case r.tidies <- struct{}{}:
	default: // it is asked already
	}
}

// keepTidy keeps what is kept within its bounds, apart from everything that anybody waits for, and looks whether another process
// has changed the pins.
func (r *Reloader) keepTidy(ctx context.Context) {
	look := time.NewTicker(watchPins)
	defer look.Stop()
	var seen os.FileInfo
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if now := r.settings.Kept.PinsStamp(); !stamp.Same(now, seen) {
				seen = now
				r.Replaced()
			}
		case <-r.tidies:
			if r.following.Load() {
				continue
			}
			notes, err := r.settings.Kept.Tidy(ctx)
			if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
				notes = append(notes, err.Error())
			} else if errors.Is(err, context.Canceled) && ctx.Err() == nil {
				r.askTidy() // it gave way to something urgent
			}
			if text := strings.Join(notes, "; "); text != told {
				if told = text; text != "" {
					r.log.Warn("what lists held before is not kept as it should be", slog.String("notes", text))
				}
			}
		}
	}
}

// waitless are the lists without those that wait for their first adoption.
func (r *Reloader) waitless() []List {
	return slices.DeleteFunc(slices.Clone(r.settings.Lists), func(l List) bool { return r.pins[l.Name].Waits })
}

// PinRemarks returns a line for each list that does not follow its files, if there is something to say of it.
func PinRemarks(pins []kept.Pin) (lines []string) {
	for _, p := range pins {
		waits := ""
		if p.Proposal != nil {
			waits = fmt.Sprintf("; a change waits (%s): blockd adopt %s", p.Proposal.Counted(), p.List)
		}
		switch {
		case p.Waits && p.Proposal != nil:
			lines = append(lines, fmt.Sprintf("list %s has nothing yet: its first load (%s) waits: blockd adopt %s", p.List, term.Counted(p.Proposal.Content.Entries(), "entry"), p.List))
		case p.Waits:
			lines = append(lines, fmt.Sprintf("list %s has nothing yet, and its file nothing to adopt", p.List))
		case p.How != kept.Review:
			lines = append(lines, fmt.Sprintf("list %s serves what it had at %s (%s)%s", p.List, shownTime(p.Served), p.How, waits))
		case waits != "":
			lines = append(lines, fmt.Sprintf("list %s serves what it had at %s%s", p.List, shownTime(p.Served), waits))
		}
	}
	return lines
}
