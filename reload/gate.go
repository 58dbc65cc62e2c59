package reload

import (
	"cmp"
	"slices"
	"time"

	"blockd/index"
	"blockd/lists"
)

// gate decides whether a built generation may serve. It returns the generation, with what it
// lacks, or why it must not take over.
//
// What serves now must not be missing from the next generation: a file that is refused has
// its last good content there, or the generation is not taken. A file that was never good may
// be missing again, and so may one that has just come. The build has judged each file by itself (lists.Guard,
// self-tests). Here the lists are compared with those in force, see compare and stale, and with past mail, see
// holdEntries and freed.
func (r *Reloader) gate(draft *index.Index, table []index.ListInfo, faults []problem) (*generation, []problem) {
	g := &generation{lacks: lacking{}}
	byName := listsByName(r.settings.Lists)
	lost := false
	for _, row := range table {
		switch {
		case row.Refused == nil:
		case row.LastGood:
			// The cache may be older than what serves: another process may compile without it.
			lost = lost || !r.serves(row)
			g.held = append(g.held, rowProblem(row))
		default:
			g.without = append(g.without, rowProblem(row))
		}
	}
	for _, p := range faults { // a glob may have no row
		if !slices.ContainsFunc(table, func(row index.ListInfo) bool { return fileOf(row) == p.file() }) {
			g.without = append(g.without, p)
		}
	}
	for _, p := range g.without {
		g.lacks[p.file()] = byName[p.list].Optional
		lost = lost || r.live.Load() != nil && !r.lacks.has(p.file()) && !comes(p.file(), byName[p.list].Named, r.live.Load().Lists(), table)
	}
	if lost {
		return nil, g.problems()
	}
	var objected []problem
	accepted := acceptedIn(table, r.accepted)
	g.withheld, objected = r.holdEntries(draft, r.held.without(accepted), accepted)
	if old := cmp.Or(r.live.Load(), r.former); old != nil {
		odd := compare(r.settings.Lists, old.Lists(), table)
		odd = append(odd, stale(r.settings.Lists, old, table, time.Now())...)
		odd = append(odd, objected...)
		odd = append(odd, r.freed(old, draft)...)
		odd = slices.DeleteFunc(odd, func(p problem) bool { return r.isMeant(p.list) && p.class != lists.Correspondents })
		if old == r.former {
			odd = slices.DeleteFunc(odd, func(p problem) bool { return !wasRead(table, p.list) })
		}
		odd = slices.DeleteFunc(odd, func(p problem) bool {
			meant := acceptable(p.class) && accepted(p.list)
			if meant {
				g.accepted = append(g.accepted, p)
			}
			return meant
		})
		for i := range odd {
			odd[i].gate = true
		}
		if len(odd) > 0 {
			return nil, append(odd, g.problems()...)
		}
	}
	return g, nil
}

// comes reports whether a file of a list is one that has come to those which serve, and did not take the place of one
// of them. Files that are named after their owners never take each other's place.
func comes(f file, named bool, serving, table []index.ListInfo) bool {
	isIn := func(table []index.ListInfo, f file) bool {
		return slices.ContainsFunc(table, func(row index.ListInfo) bool { return fileOf(row) == f })
	}
	if isIn(serving, f) || !isIn(table, f) {
		return false
	}
	return named || !slices.ContainsFunc(serving, func(row index.ListInfo) bool {
		return row.Source.List == f[0] && !isIn(table, fileOf(row))
	})
}

// rowProblem says why a build has refused a source.
func rowProblem(row index.ListInfo) problem {
	p := sourceProblem(row.Refused)
	p.list, p.path = row.Source.List, row.Source.Path
	return p
}

// wasRead reports whether a list has files, none of which was refused.
func wasRead(table []index.ListInfo, list string) (has bool) {
	for _, row := range table {
		if row.Source.List == list {
			if has = row.Refused == nil; !has {
				break
			}
		}
	}
	return has
}
