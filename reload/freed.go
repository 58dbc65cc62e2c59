package reload

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"

	"blockd/index"
	"blockd/lists"
	"blockd/records/history"
)

// freedFrom is the number of refusals from which on a share of them says something.
const freedFrom = 20

// Past are the refusals of the last days, by list.
type Past = map[string]*history.Refused

// Judge says whether a generation blocks a past mail, and returns the entry that decides; ok is
// false if none does.
type Judge = func(ix *index.Index, past *history.Refusal) (m index.Match, blocked, ok bool)

// readRefusals returns a function that reads the refusals of the last days once, when it is
// first called.
func (r *Reloader) readRefusals(ctx context.Context) func() Past {
	return sync.OnceValue(func() Past {
		if r.settings.Refusals == nil {
			return nil
		}
		past, err := r.settings.Refusals(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("past refusals cannot be read: max_freed is not judged", slog.Any("error", err))
		}
		return past
	})
}

// freed finds the lists of a draft that would lift more of the refusals of the last days than
// they may, by exceptions that have come or blocks that have gone.
func (r *Reloader) freed(old, draft *index.Index) []problem {
	if r.settings.Judge == nil || r.refusals == nil {
		return nil
	}
	return freed(r.settings.Lists, old, draft, r.refusals(), r.settings.Judge)
}

// Freed is like Compare, about what a new generation would let pass. Its errors wrap a
// *lists.FileError of class Frees.
func Freed(all []List, old, draft *index.Index, past Past, judge Judge) []Difference {
	return differences(freed(all, old, draft, past, judge))
}

// lifting is the refusals that one list would lift.
type lifting struct {
	all, own float64 // refusals: of all lists, and of itself
	examples []string
	entries  map[freeing]float64 // refusals by what has come or gone
	path     string
}

// freeing is an entry whose coming or going lifts refusals.
type freeing struct {
	text string
	line int
}

// freed is Freed as problems.
func freed(all []List, old, draft *index.Index, past Past, judge Judge) (odd []problem) {
	total := 0.
	for _, of := range past {
		total += of.Count
	}
	if total < freedFrom {
		return nil
	}
	found := lifted(old, draft, past, judge)
	for _, l := range all {
		f := found[l.Name]
		if f == nil || !sameSettings(l.Name, old.Lists(), draft.Lists()) {
			continue
		}
		what, lifted, of := "", f.all, total
		if l.reach() != index.AllExceptions {
			what, lifted, of = " of this list", f.own, 0
			if own := past[l.Name]; own != nil {
				of = own.Count
			}
		}
		if of >= freedFrom && lifted > l.MaxFreed*of {
			odd = append(odd, fileProblem(l.Name, f.path, &lists.FileError{Path: f.path, Class: lists.Frees,
				Err: fmt.Errorf("would lift %.0f of the %.0f refusals%s of the last 7 days, more than max_freed = %v of them: %s; by %s, which has come or gone",
					math.Round(lifted), of, what, l.MaxFreed, strings.Join(f.examples, ", "), f.shownEntries())}))
		}
	}
	return odd
}

// lifted finds, by list, the refusals that a draft does not repeat.
func lifted(old, draft *index.Index, past Past, judge Judge) map[string]*lifting {
	found := map[string]*lifting{}
	for list, of := range past {
		for i := range of.Sample {
			refusal := &of.Sample[i]
			by, m, freed := freedBy(old, draft, refusal, judge)
			if !freed {
				continue
			}
			l := found[by.List]
			if l == nil {
				l = &lifting{entries: map[freeing]float64{}, path: by.Path}
				found[by.List] = l
			}
			if l.all += refusal.Weight; by.List == list {
				l.own += refusal.Weight
			}
			if len(l.examples) < shownExamples {
				l.examples = append(l.examples, shownRefusal(refusal))
			}
			l.entries[freeing{strings.Clone(m.Name()), m.Line}] += refusal.Weight
		}
	}
	return found
}

// freedBy returns the entry that lifts a refusal, and the source that it stands in: the block
// that has gone, unless an exception has come.
func freedBy(old, draft *index.Index, refusal *history.Refusal, judge Judge) (by index.Source, m index.Match, freed bool) {
	before, blocked, _ := judge(old, refusal)
	if !blocked {
		return by, m, false
	}
	after, still, excepted := judge(draft, refusal)
	if excepted {
		return draft.Lists()[after.Row].Source, after, !still
	}
	return old.Lists()[before.Row].Source, before, !still
}

// shownEntries names the entries that lift most.
func (l *lifting) shownEntries() string {
	var all []weighed
	for e, n := range l.entries {
		all = append(all, weighed{e.text, e.line, n})
	}
	return shownEntries(all)
}

func shownRefusal(r *history.Refusal) string {
	if r.Sender != "" {
		return r.Sender
	}
	return r.Client.String()
}

// reach says which lists the exceptions of the list reach.
func (l List) reach() index.Exceptions {
	s := index.Source{Settings: l.Settings, Exceptions: l.Exceptions}
	return s.Reach()
}

// sameSettings reports whether a list is in both tables with equal settings. What another
// configuration lets pass is meant.
func sameSettings(list string, was, is []index.ListInfo) bool {
	find := func(table []index.ListInfo) (s index.Source, ok bool) {
		for _, row := range table {
			if row.Source.List == list {
				s = row.Source
				s.Path = ""
				return s, true
			}
		}
		return s, false
	}
	a, had := find(was)
	b, has := find(is)
	return had && has && a.Equal(b)
}
