package reload

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"blockd/index"
)

// A list that is refused does not hold back the others. The build takes what the
// list held in the last generation from its cache, and what changed elsewhere
// serves. Where there is no such thing the generation before serves whole.

// build makes a new generation of the lists as they are now serve, and publishes it, if it
// may. It returns as decide does.
func (r *Reloader) build(ctx context.Context, v view) (outcome, []problem) {
	draft, g, why, err := r.draft(ctx, v.sources, v.faults)
	if err != nil {
		return failed, buildProblems(err)
	}
	if draft == nil {
		r.decideOn(v)
		return refused, why
	}
	defer draft.Discard()
	if err := r.keepHeld(r.alsoHeld(g)); err != nil { // before anybody can open the new file
		return failed, []problem{{err: err}}
	}
	if err := draft.Publish(); err != nil {
		return failed, []problem{{err: err}}
	}
	g.ix, g.bytes, g.seconds = draft.Index(), draft.Report.Bytes, time.Since(v.began).Seconds()
	r.serve(g, built)
	r.forgetHeld()
	v.contents = contents(draft.Report.Lists, g.unread(), v.contents)
	if len(g.held) > 0 {
		r.decideOn(v)
	} else {
		r.decidedOn = v.contents
	}
	return built, g.problems()
}

// draft builds what may serve: a draft that is to be published, or why there is
// none. failed is an error of the index and not of a list.
func (r *Reloader) draft(ctx context.Context, sources []index.Source, faults []problem) (d *index.Draft, g *generation, why []problem, failed error) {
	options := index.Options{
		KeepGoing: r.live.Load() == nil || len(r.lacks) > 0,
		Cache:     r.settings.Path + index.CacheSuffix,
		LastGood:  true,
		Hold:      map[int]error{},
		Memory:    r.settings.Memory,
	}
	for {
		d, err := index.Build(ctx, r.settings.Path, sources, options)
		if errors.As(err, new(*index.SourcesError)) {
			return nil, nil, buildProblems(err), nil
		}
		if err != nil {
			return nil, nil, nil, err
		}
		table := d.Report.Lists
		if r.live.Load() == nil && release(options.Hold, table) {
			d.Discard() // a list that cannot be held begins anew, as at a first start
			continue
		}
		g, odd := r.gate(d.Index(), table, faults)
		news := r.news(table, odd)
		if len(odd) == 0 && news {
			return d, g, nil, nil
		}
		d.Discard()
		if len(odd) == 0 {
			return nil, nil, g.problems(), nil
		}
		// What was held before is in none of it, so that this ends. A list may be found
		// when another is held: it would refuse the same senders of late.
		hold := holdBack(table, odd)
		if !news || len(hold) == 0 {
			return nil, nil, odd, nil
		}
		maps.Copy(options.Hold, hold)
		r.former = nil
	}
}

// release takes the lists out of hold of which a file has nothing to be held by.
func release(hold map[int]error, table []index.ListInfo) (released bool) {
	for i, row := range table {
		if hold[i] == nil || row.LastGood {
			continue
		}
		released = true
		for j, other := range table {
			if other.Source.List == row.Source.List {
				delete(hold, j)
			}
		}
	}
	return released
}

// holdBack says of which rows a build is to take what they held before: of all
// files of every list that the gate refuses.
func holdBack(table []index.ListInfo, odd []problem) map[int]error {
	hold := map[int]error{}
	for _, p := range odd {
		if !p.gate {
			continue
		}
		for i, row := range table {
			if row.Source.List == p.list && hold[i] == nil && row.Refused == nil {
				hold[i] = p.err
			}
		}
	}
	return hold
}

// news reports whether a table has anything that does not serve yet, the lists
// that the gate finds odd aside, or is not in a file.
func (r *Reloader) news(table []index.ListInfo, odd []problem) bool {
	serving := r.live.Load()
	if serving == nil || serving.Updated() {
		return true
	}
	isOdd := func(list string) bool {
		return slices.ContainsFunc(odd, func(p problem) bool { return p.list == list })
	}
	left := func(table []index.ListInfo) (rest []content) {
		for _, c := range contents(table, nil, nil) {
			if !isOdd(c.list) {
				rest = append(rest, c)
			}
		}
		return rest
	}
	return !slices.Equal(left(table), left(serving.Lists()))
}

// serves reports whether what is in the row serves.
func (r *Reloader) serves(row index.ListInfo) bool {
	serving := r.live.Load()
	return serving == nil || slices.ContainsFunc(serving.Lists(), func(old index.ListInfo) bool {
		return old.Source.List == row.Source.List && old.Source.Path == row.Source.Path && old.Summary.Hash == row.Summary.Hash
	})
}

// hopeless reports whether there is nothing to build because of faults: nothing
// else has changed, or one of them is of no file whose last content could stand
// in, such as a folder that cannot be read.
func (r *Reloader) hopeless(v view) bool {
	faulty := map[[2]string]bool{}
	lost := false
	for _, p := range v.faults {
		faulty[[2]string{p.list, p.path}] = true
		if r.lacks.has(p.list, p.path) {
			continue
		}
		lost = true
		if !slices.ContainsFunc(v.sources, func(s index.Source) bool { return s.List == p.list && s.Path == p.path }) {
			return true
		}
	}
	if !lost {
		return false
	}
	was := map[content]bool{}
	serving := contents(r.live.Load().Lists(), nil, nil)
	for _, c := range serving {
		was[c] = true
	}
	for _, c := range v.contents {
		if !was[c] && !faulty[[2]string{c.list, c.path}] {
			return false
		}
	}
	return len(v.contents) == len(serving)
}

// told reports whether all faults are among the problems that are known.
func (r *Reloader) told(faults []problem) bool {
	for _, f := range faults {
		if !slices.ContainsFunc(r.problems, func(p problem) bool { return p.err.Error() == f.err.Error() }) {
			return false
		}
	}
	return true
}
