package reload

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"blockd/history"
	"blockd/index"
	"blockd/lists"
)

// freedFrom is from how many refusals on a share of them says something.
const freedFrom = 20

// Past are the refusals of the last days, by list.
type Past = map[string]*history.Refused

// Judge says what a generation makes of a mail of the past: whether it blocks it, and
// the entry that decides; ok is false where none does.
type Judge = func(ix *index.Index, past *history.Refusal) (m index.Match, blocked, ok bool)

// readRefusals returns a function that reads the refusals of the last days when it is first
// called, and never again: once for a load.
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

// freed finds the lists of a draft that would lift more of the refusals of the last days
// than they may: by exceptions that came, or by blocks that went.
func (r *Reloader) freed(old, draft *index.Index) []problem {
	if r.settings.Judge == nil || r.refusals == nil {
		return nil
	}
	return freed(r.settings.Lists, old, draft, r.refusals(), r.settings.Judge)
}

// Freed is Compare for what a new generation would let pass, as errors that wrap a
// *lists.FileError of class Frees.
func Freed(all []List, old, draft *index.Index, past Past, judge Judge) []error {
	var errs []error
	for _, p := range freed(all, old, draft, past, judge) {
		errs = append(errs, p.err)
	}
	return errs
}

// lifting is what one list would lift.
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

// shownEntries names the entries that lift most.
func (l *lifting) shownEntries() string {
	all := slices.SortedFunc(maps.Keys(l.entries), func(a, b freeing) int {
		return cmp.Or(cmp.Compare(l.entries[b], l.entries[a]), a.line-b.line, strings.Compare(a.text, b.text))
	})
	var shown []string
	for _, e := range all[:min(len(all), shownExamples)] {
		shown = append(shown, fmt.Sprintf("%s (line %d)", e.text, e.line))
	}
	text := strings.Join(shown, ", ")
	if more := len(all) - shownExamples; more > 0 {
		text += fmt.Sprintf(" and %d more entries", more)
	}
	return text
}

func freed(all []List, old, draft *index.Index, past Past, judge Judge) (odd []problem) {
	total := 0.
	for _, of := range past {
		total += of.Count
	}
	if total < freedFrom {
		return nil
	}
	was, is := old.Lists(), draft.Lists()
	found := map[string]*lifting{}
	for list, of := range past {
		for i := range of.Sample {
			refusal := &of.Sample[i]
			before, blocked, _ := judge(old, refusal)
			if !blocked {
				continue
			}
			after, still, excepted := judge(draft, refusal)
			if still {
				continue
			}
			table, m := was, before // the block has gone, unless an exception has come
			if excepted {
				table, m = is, after
			}
			by := &table[m.Row].Source
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
	for _, l := range all {
		f := found[l.Name]
		if f == nil || !sameSettings(l.Name, was, is) {
			continue
		}
		what, lifted, of := "", f.all, total
		if l.reach() != index.AllExceptions {
			what, lifted, of = " of this list", f.own, 0
			if own := past[l.Name]; own != nil {
				of = own.Count
			}
		}
		if of < freedFrom || lifted <= l.MaxFreed*of {
			continue
		}
		odd = append(odd, fileProblem(l.Name, f.path, &lists.FileError{Path: f.path, Class: lists.Frees,
			Err: fmt.Errorf("would lift %.0f of the %.0f refusals%s of the last 7 days, more than max_freed = %v of them: %s; by %s, which has come or gone",
				math.Round(lifted), of, what, l.MaxFreed, strings.Join(f.examples, ", "), f.shownEntries())}))
	}
	return odd
}

func shownRefusal(r *history.Refusal) string {
	if r.Sender != "" {
		return r.Sender
	}
	return r.Client.String()
}

// reach is how far the exceptions of the list reach.
func (l List) reach() index.Exceptions {
	s := index.Source{Settings: l.Settings, Exceptions: l.Exceptions}
	return s.Reach()
}

// sameSettings reports whether a list was in both tables, read alike: what another
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
