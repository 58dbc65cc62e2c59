package reload

import (
	"cmp"
	"slices"
	"time"

	"blockd/index"
)

// gate decides whether a built generation may serve. It returns either the
// generation, with what it is known to lack, or why it must not take over.
//
// What served until now may not go missing from the next generation: a file that
// is refused has in it what it had before, or the generation is not taken. One that
// was never good may be lacking again. What a file is by itself, the build has
// judged before (lists.Guard, self-tests); here the lists are held against those in
// force, see compare and stale, and against the mail of late, see holdEntries and freed.
func (r *Reloader) gate(draft *index.Index, table []index.ListInfo, faults []problem) (*generation, []problem) {
	g := &generation{lacks: lacking{}}
	optional := map[string]bool{}
	for _, l := range r.settings.Lists {
		optional[l.Name] = l.Optional
	}
	lost := false
	for _, row := range table {
		switch {
		case row.Refused == nil:
		case row.LastGood:
			// What the cache has may be older than what serves: others compile without it.
			lost = lost || !r.serves(row)
			g.held = append(g.held, rowProblem(row))
		default:
			g.without = append(g.without, rowProblem(row))
		}
	}
	for _, p := range faults { // of a glob there may be no row
		if !hasRow(table, p) {
			g.without = append(g.without, p)
		}
	}
	for _, p := range g.without {
		g.lacks[[2]string{p.list, p.path}] = optional[p.list]
		lost = lost || r.live.Load() != nil && !r.lacks.has(p.list, p.path)
	}
	if lost {
		return nil, g.problems()
	}
	var objected []problem
	g.withheld, objected = r.holdEntries(draft, r.held, func(string) bool { return false })
	if old := cmp.Or(r.live.Load(), r.former); old != nil {
		odd := compare(r.settings.Lists, old.Lists(), table)
		odd = append(odd, stale(r.settings.Lists, old, table, time.Now())...)
		odd = append(odd, objected...)
		odd = append(odd, r.freed(old, draft)...)
		if old == r.former {
			odd = slices.DeleteFunc(odd, func(p problem) bool { return !wasRead(table, p.list) })
		}
		for i := range odd {
			odd[i].gate = true
		}
		if len(odd) > 0 {
			return nil, append(odd, g.problems()...)
		}
	}
	return g, nil
}

// rowProblem is why a build has left a source out.
func rowProblem(row index.ListInfo) problem {
	p := buildProblems(&index.SourcesError{Errs: []error{row.Refused}})[0]
	p.list, p.path = row.Source.List, row.Source.Path
	return p
}

// wasRead reports whether a list has files, none of which was refused.
func wasRead(table []index.ListInfo, list string) bool {
	has := false
	for _, row := range table {
		if row.Source.List == list {
			if has = row.Refused == nil; !has {
				break
			}
		}
	}
	return has
}

func hasRow(table []index.ListInfo, p problem) bool {
	for _, row := range table {
		if row.Source.List == p.list && row.Source.Path == p.path {
			return true
		}
	}
	return false
}
