package reload

import (
	"fmt"

	"blockd/index"
	"blockd/lists"
)

// gate decides whether a built generation may serve. It returns either the
// generation, with what it is known to lack, or why it must not take over.
//
// A file that served until now may not go missing from the next generation; one
// that was never good may be lacking again. And a list that had entries must
// have some, whether or not it is optional: what empties a list by accident, a
// download that failed or a script that stopped half way, is far more frequent
// than the wish to empty it, and AllowEmpty states the wish.
func (r *Reloader) gate(table []index.ListInfo, faults []problem) (*generation, []problem) {
	g := &generation{lacks: lacking{}}
	optional := map[string]bool{}
	for _, l := range r.settings.Lists {
		optional[l.Name] = l.Optional
	}
	for _, row := range table {
		if row.Refused != nil {
			g.without = append(g.without, rowProblem(row))
		}
	}
	for _, p := range faults { // of a glob there may be no row
		if !hasRow(table, p) {
			g.without = append(g.without, p)
		}
	}
	var refused []problem
	for _, p := range g.without {
		g.lacks[[2]string{p.list, p.path}] = optional[p.list]
		if r.live.Load() != nil && !r.lacks.has(p.list, p.path) {
			refused = append(refused, p)
		}
	}
	if len(refused) > 0 {
		return nil, refused
	}
	if refused = r.emptied(table); len(refused) > 0 {
		return nil, refused
	}
	return g, nil
}

// emptied finds the lists that have lost all their entries.
func (r *Reloader) emptied(table []index.ListInfo) (refused []problem) {
	old := r.live.Load()
	if old == nil {
		return nil
	}
	was, is := entries(old.Lists()), entries(table)
	for _, l := range r.settings.Lists {
		if was[l.Name] > 0 && is[l.Name] == 0 && !l.AllowEmpty {
			refused = append(refused, fileProblem(l.Name, l.Path, &lists.FileError{Path: l.Path, Class: lists.Empty,
				Err: fmt.Errorf("no entry is left of %d", was[l.Name])}))
		}
	}
	return refused
}

// rowProblem is why a build has left a source out.
func rowProblem(row index.ListInfo) problem {
	p := buildProblems(&index.SourcesError{Errs: []error{row.Refused}})[0]
	p.list, p.path = row.Source.List, row.Source.Path
	return p
}

func hasRow(table []index.ListInfo, p problem) bool {
	for _, row := range table {
		if row.Source.List == p.list && row.Source.Path == p.path {
			return true
		}
	}
	return false
}
