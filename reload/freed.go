package reload

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/records/history"
)

// freedFrom is the number of refused senders from which on a share of them says something.
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

// freed finds the lists of a draft whose new exceptions would lift more of the refusals of the last
// days than they may. That a block has gone is its owner's will, and counts nowhere.
func (r *Reloader) freed(old, draft *index.Index) []problem {
	if r.settings.Judge == nil || r.refusals == nil {
		return nil
	}
	return freed(r.settings.Lists, old, draft, r.refusals(), r.settings.Judge)
}

// Freed is like Compare, about what a new generation would let pass. Its errors wrap a
// *lists.FileError of class Frees.
func Freed(all []List, old, draft *index.Index, past Past, judge Judge) []Difference {
	return differences(unchosen(all, freed(all, old, draft, past, judge)))
}

// lifting is what the new exceptions of one list would lift.
type lifting struct {
	all, own map[string]bool // refused senders: by any list, and by itself
	examples []string
	entries  map[freeing]float64 // refusals by exception
	path     string
}

// freeing is an exception that lifts refusals.
type freeing struct {
	text string
	line int
}

// freed is Freed as problems. A sender counts once, however often it was refused: one partner who tries again and
// again is not many.
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
		what, lifted, of := "", f.all, refusedSenders(past)
		if l.reach() != index.AllExceptions {
			what, lifted, of = " of this list", f.own, refusedSenders(Past{l.Name: past[l.Name]})
		}
		if of >= freedFrom && float64(len(lifted)) > l.MaxFreed*float64(of) {
			odd = append(odd, fileProblem(l.Name, f.path, &lists.FileError{Path: f.path, Class: lists.Frees,
				Err: fmt.Errorf("would lift %d of the %d refusals%s of the last 7 days, more than max_freed = %v of them: %s; by %s, which has come (a sender counts once)",
					len(lifted), of, what, l.MaxFreed, strings.Join(f.examples, ", "), f.shownEntries())}))
		}
	}
	return odd
}

// refusedSenders counts the senders of some refusals.
func refusedSenders(past Past) int {
	seen := map[string]bool{}
	for _, of := range past {
		for i := 0; of != nil && i < len(of.Sample); i++ {
			seen[shownRefusal(&of.Sample[i])] = true
		}
	}
	return len(seen)
}

// lifted finds, by list, the refusals that a draft does not repeat because of an exception.
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
				l = &lifting{all: map[string]bool{}, own: map[string]bool{}, entries: map[freeing]float64{}, path: by.Path}
				found[by.List] = l
			}
			sender := shownRefusal(refusal)
			if !l.all[sender] && len(l.examples) < shownExamples {
				l.examples = append(l.examples, sender)
			}
			if l.all[sender] = true; by.List == list {
				l.own[sender] = true
			}
			l.entries[freeing{strings.Clone(m.Name()), m.Line}] += refusal.Weight
		}
	}
	return found
}

// freedBy returns the exception that has come and lifts a refusal, and the source that it stands in. What only serves
// again because a block has gone is lifted by none, whichever exception says so then.
func freedBy(old, draft *index.Index, refusal *history.Refusal, judge Judge) (by index.Source, m index.Match, freed bool) {
	if _, blocked, _ := judge(old, refusal); !blocked {
		return by, m, false
	}
	m, still, excepted := judge(draft, refusal)
	if still || !excepted {
		return by, m, false
	}
	before, after := covering(old, refusal), covering(draft, refusal)
	by = draft.Lists()[m.Row].Source
	had := slices.ContainsFunc(before, func(b index.Match) bool {
		return b.Action == m.Action && b.Kind == m.Kind && b.Scope == m.Scope && b.Name() == m.Name() && old.Lists()[b.Row].Source.List == by.List
	})
	blocks := slices.ContainsFunc(after, func(b index.Match) bool { return !b.Action.Allows() })
	return by, m, !had && blocks
}

// covering returns all entries of ix about the sender and the client of a refusal; of an unreadable index those that
// were read.
func covering(ix *index.Index, refusal *history.Refusal) []index.Match {
	sender, _ := addr.Parse(refusal.Sender) // what is no sender is covered by none
	matches, _ := ix.Lookup(nil, sender, time.Now())
	matches, _ = ix.LookupClient(matches, refusal.Client.WithZone("").Unmap(), time.Now())
	return matches
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
