package reload

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"blockd/index"
)

// A list that is refused does not hold back the others. The build takes the last good content
// of that list from its cache, and what changed elsewhere serves. Where the cache has none the
// old generation goes on serving.

// build makes a new generation of the lists as they are now, publishes it and swaps it in, if
// it may serve. It returns as decide does.
func (r *Reloader) build(ctx context.Context, v view) (outcome, []problem) {
	draft, g, why, err := r.draft(ctx, v.sources, v.faults)
	if err != nil {
		return failed, buildProblems(err)
	}
	if draft == nil {
		r.decideOn(v, why)
		return refused, why
	}
	defer draft.Discard()
	if err := r.keepHeld(r.alsoHeld(g)); err != nil { // before another process can open the new file
		return failed, []problem{{err: err}}
	}
	if err := draft.Publish(); err != nil {
		return failed, []problem{{err: err}}
	}
	g.ix, g.bytes, g.seconds = draft.Index(), draft.Report.Bytes, time.Since(v.began).Seconds()
	tellAccepted(r.log, g.accepted, g.ix, cmp.Or(r.live.Load(), g.ix))
	r.serve(g, built)
	r.forgetHeld()
	problems := g.problems()
	v.contents = contents(draft.Report.Lists, g.unread(), v.contents)
	if len(problems) > 0 {
		r.decideOn(v, problems)
	} else {
		r.decidedOn = v.contents
	}
	return built, problems
}

// draft returns a draft that may be published, or why there is none. failed is an error of
// the index and not of a list.
func (r *Reloader) draft(ctx context.Context, sources []index.Source, faults []problem) (d *index.Draft, g *generation, why []problem, failed error) {
	options := index.Options{
		KeepGoing: true, // the gate says what must not be missing
		Cache:     r.settings.Path + index.CacheSuffix,
		LastGood:  true,
		Hold:      map[int]error{},
		Memory:    r.settings.Memory,
		Hashes:    r.settings.Hashes,
	}
	for i, s := range sources {
		if why := r.refused[s.List]; why != nil {
			options.Hold[i] = why
		}
	}
	for {
		d, err := r.settings.Build(ctx, r.settings.Path, sources, options, r.live.Load() == nil)
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
		news := r.urged || r.news(table, odd)
		if len(odd) == 0 && news {
			return d, g, nil, nil
		}
		d.Discard()
		if len(odd) == 0 {
			return nil, nil, g.problems(), nil
		}
		// The loop ends because each round holds at least one more file. A list may be found
		// odd only when another is held, because both would refuse the same senders.
		hold := holdBack(r.settings.Lists, table, odd)
		if !news || len(hold) == 0 {
			return nil, nil, odd, nil
		}
		maps.Copy(options.Hold, hold)
		r.former = nil
	}
}

// release removes from hold the lists with a file that has no last good content.
func release(hold map[int]error, table []index.ListInfo) (released bool) {
	for i, row := range table {
		if hold[i] != nil && !row.LastGood {
			released = true
			maps.DeleteFunc(hold, func(j int, _ error) bool { return table[j].Source.List == row.Source.List })
		}
	}
	return released
}

// holdBack returns the rows of which a build must take the last good content, or nothing if there is none: all files of
// the lists that the gate refuses, but of a list of owners' files only the one that it names.
func holdBack(all []List, table []index.ListInfo, odd []problem) map[int]error {
	hold, byName := map[int]error{}, listsByName(all)
	for _, p := range odd {
		if !p.gate {
			continue
		}
		for i, row := range table {
			one := byName[p.list].Named && p.path != byName[p.list].Path
			if row.Source.List == p.list && hold[i] == nil && row.Refused == nil && (!one || row.Source.Path == p.path) {
				hold[i] = p.err
			}
		}
	}
	return hold
}

// news reports whether a table has anything that does not serve yet, or serves from memory
// alone. Lists that the gate finds odd do not count.
func (r *Reloader) news(table []index.ListInfo, odd []problem) bool {
	serving := r.live.Load()
	if serving == nil || serving.Updated() || serving.Hashes() != r.settings.Hashes {
		return true
	}
	isOdd := func(c content) bool {
		return slices.ContainsFunc(odd, func(p problem) bool { return p.list == c.list })
	}
	now, was := contents(table, nil, nil), contents(serving.Lists(), nil, nil)
	return !slices.Equal(slices.DeleteFunc(now, isOdd), slices.DeleteFunc(was, isOdd))
}

// serves reports whether the content of the row serves.
func (r *Reloader) serves(row index.ListInfo) bool {
	serving := r.live.Load()
	return serving == nil || slices.ContainsFunc(serving.Lists(), func(old index.ListInfo) bool {
		return fileOf(old) == fileOf(row) && old.Summary.Hash == row.Summary.Hash
	})
}

// hopeless reports whether the faults leave nothing to build: nothing else has changed, or a
// fault is of no file that may have a last good content, such as a folder that cannot be read.
func (r *Reloader) hopeless(v view) bool {
	faulty, lost := map[file]bool{}, false
	for _, p := range v.faults {
		faulty[p.file()] = true
		if r.lacks.has(p.file()) {
			continue
		}
		lost = true
		if !slices.ContainsFunc(v.sources, func(s index.Source) bool { return file{s.List, s.Path} == p.file() }) {
			return true
		}
	}
	return lost && slices.EqualFunc(v.contents, contents(r.live.Load().Lists(), nil, nil), func(is, was content) bool {
		return is == was || faulty[file{is.list, is.path}]
	})
}

// told reports whether all faults are among the problems that Status shows.
func (r *Reloader) told(faults []problem) bool {
	for _, f := range faults {
		if !slices.ContainsFunc(r.problems, func(p problem) bool { return p.err.Error() == f.err.Error() }) {
			return false
		}
	}
	return true
}
