package reload

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/index/kept"
	"blockd/lists"
)

// generation is an index with what its file does not tell.
type generation struct {
	ix      *index.Index
	bytes   int64
	seconds float64   // from the look that asked for it; 0: was there
	lacks   lacking   // the sources that it was built without
	without []problem // why it lacks them
	held    []problem // why lists have what they had before

	accepted []problem // what speaks against lists that an operator has accepted

	withheld heldEntries // they are in its file and do not act
}

// problems returns those that remain while g serves. The files of a list that is held have
// the same one.
func (g *generation) problems() []problem {
	all := slices.CompactFunc(slices.Clone(g.held), func(a, b problem) bool { return a.err.Error() == b.err.Error() })
	return append(all, g.without...)
}

// unread returns the sources whose rows do not tell what their files hold.
func (g *generation) unread() lacking {
	all := maps.Clone(g.lacks)
	for _, p := range g.held {
		all[p.file()] = false
	}
	return all
}

// lacking is the set of sources that a generation was built without, because nothing good of
// them was ever there. The value is List.Optional. A glob that matches nothing is in it by its
// pattern.
type lacking map[file]bool

func (l lacking) has(f file) bool {
	_, ok := l[f]
	return ok
}

// filtering counts the lists that are not optional, and those of them that filter: at least
// one file of each was good.
func (l lacking) filtering(all []List, table []index.ListInfo) (filtering, lists int) {
	filters := map[string]bool{}
	for _, row := range table {
		filters[row.Source.List] = filters[row.Source.List] || !l.has(fileOf(row))
	}
	for _, list := range all {
		if list.Optional {
			continue
		}
		if lists++; filters[list.Name] {
			filtering++
		}
	}
	return filtering, lists
}

func openGeneration(path string) (*generation, error) {
	ix, err := index.Open(path)
	if err != nil {
		return nil, err
	}
	g := &generation{ix: ix, lacks: lacking{}}
	for _, row := range ix.Lists() {
		missing := strings.HasPrefix(row.Summary.Why, string(lists.Missing))
		if row.Summary.Verdict == lists.Refused && !(row.Source.Optional && missing) {
			g.lacks[fileOf(row)] = row.Source.Optional
		}
	}
	if info, err := os.Stat(path); err == nil {
		g.bytes = info.Size()
	}
	return g, nil
}

// onDisk opens the index at Settings.Path, or returns nil. A damaged one is logged, and then
// built anew like a missing one.
func (r *Reloader) onDisk() *generation {
	g, err := openGeneration(r.settings.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("index on disk cannot be used: it will be built anew", "error", err)
	}
	if g != nil {
		g.withheld = r.held.in(g.ix)
		g.ix.Withhold(g.withheld.set())
	}
	return g
}

// holds reports whether g was built from these lists by these settings. Their content may
// have changed since, the files of a glob may be others, and g may lack sources.
func (g *generation) holds(all []List, pins map[string]kept.Pin) bool {
	files := map[string]int{}
	byName := listsByName(all)
	for list, pin := range pins {
		if len(pin.Content) == 0 {
			files[list] = 1 // it has no row
		}
	}
	for _, row := range g.ix.Lists() {
		l, ok := byName[row.Source.List]
		same := l.source(row.Source.Path)
		pin, pinned := pins[l.Name]
		if pinned && !pin.Content.HasHash(row.Source.Path, hex.EncodeToString(row.Summary.Hash[:])) {
			return false // compiled by another process from what the list's file has
		}
		if !ok || !same.Equal(row.Source) || !(l.covers(row.Source.Path) || pinned && pin.Content.Has(row.Source.Path)) {
			return false
		}
		files[l.Name]++
	}
	for _, l := range all {
		if files[l.Name] == 0 && !(l.Optional && l.isGlob()) {
			return false
		}
	}
	return true
}

// covers reports whether path is a file of the list.
func (l List) covers(path string) bool {
	if !l.isGlob() {
		return path == l.Path
	}
	ok, err := filepath.Match(filepath.Clean(l.Path), path)
	return ok && err == nil
}

// change is what a swap changed in one list, all its files together.
type change struct {
	List string `json:"list"`
	Old  int    `json:"old"` // entries
	New  int    `json:"new"`
}

func (c change) String() string { return fmt.Sprintf("%s %d->%d", c.List, c.Old, c.New) }

func changes(all []List, old, new []index.ListInfo) []change {
	was, is := entries(old), entries(new)
	list := make([]change, len(all))
	for i, l := range all {
		list[i] = change{l.Name, was[l.Name], is[l.Name]}
	}
	return list
}

// entries returns the number of entries by list.
func entries(table []index.ListInfo) map[string]int {
	n := map[string]int{}
	for _, row := range table {
		n[row.Source.List] += row.Entries()
	}
	return n
}

// serve swaps g in, by a look that ends with out. The problems that g ends are shown no more;
// the end of the look makes known which there are. A session keeps the old generation until its
// transaction ends; the last one frees its memory and mapping.
func (r *Reloader) serve(g *generation, out outcome) {
	old := r.live.Load()
	table := g.ix.Lists()
	r.tellHeld(g)
	attrs := []any{slog.String("how", outcomes[out].swap), slog.String("generation", g.ix.Generation())}
	var was []index.ListInfo
	r.mu.Lock()
	if old != nil {
		was = old.Lists()
		attrs = append(attrs, slog.String("previous", old.Generation()))
		falsePositives, asked := old.FalsePositives()
		r.past.falsePositives += falsePositives
		r.past.asked += asked
	}
	r.lacks, r.bytes, r.held = g.lacks, g.bytes, g.withheld
	r.status.Filtering, r.status.Lists = g.lacks.filtering(r.waitless(), table)
	r.status.Ready = r.status.Lists == 0 || r.status.Filtering > 0
	r.status.Since = time.Now()
	r.status.show(g.ix, r.held)
	r.status.showProblems(remaining(r.problems, g.problems()))
	r.live.Store(g.ix)
	r.mu.Unlock()
	if r.settings.Served != nil {
		r.settings.Served(g.ix)
	}
	r.former, r.accepted = nil, nil
	r.log.Info("lists swapped in", append(attrs, slog.Any("entries", changes(r.settings.Lists, was, table)),
		slog.Float64("seconds", g.seconds))...)
	r.record(g, out)
	r.tellDropped(table)
	runtime.GC() // else the old generation stays until the heap has doubled
}

// show makes the status that of an index, and of the entries that are held back.
func (s *Status) show(ix *index.Index, held heldEntries) {
	s.Generation, s.Files, s.Worth, s.Overlaps, s.Held = ix.Generation(), ix.Lists(), ix.Worth(), ix.Overlaps(), held.counts()
	s.Remarks = append(droppedRemarks(s.Files), heldRemarks(held)...)
}

// promote copies the filter of the serving generation from the file to memory, once.
func (r *Reloader) promote(ctx context.Context) {
	ix := r.live.Load()
	if ix.Generation() == r.promoted {
		return
	}
	r.promoted = ix.Generation()
	if err := ix.Promote(ctx); err != nil && ctx.Err() == nil {
		r.log.Error("filter stays in the file", slog.String("generation", ix.Generation()), slog.Any("error", err))
	}
}
