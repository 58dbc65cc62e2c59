package reload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/index/kept"
	"blockd/lists"
	"blockd/records/history"
)

// What an adoption would do is found by doing all of it but the swap: the lists are put together with what waits, and the
// gate judges that by those who wrote lately, by correspondents and by past mail. It takes as long as the adoption will.

const (
	mostWeighedNames = 20               // entries that a proposal names for one reason
	weighMailFor     = 10 * time.Second // the past mail is read for so long, the newest first
	weighAgain       = 10 * time.Minute // after a fault, such as a full disk
	mostPutOff       = 20               // looks that a proposal waits for other lists: one that is refused for long never serves as it is
)

// weigh notes in p what speaks against its adoption. A fault is noted as well; the error is that of ctx. It gives way: p is not weighed, and the next look comes
// soon, as long as other lists have changed, which come first and would be counted with it.
func (r *Reloader) weigh(end context.Context, v *view, l List, p *kept.Proposal) error {
	p.Weighed = nil
	serving := r.live.Load()
	if serving == nil {
		return nil // it is weighed when something serves
	}
	if r.putOff++; r.putOff <= mostPutOff && !slices.Equal(v.contents, contents(serving.Lists(), nil, nil)) {
		return nil
	}
	r.putOff = 0
	ctx, calm := r.calm(end, *v)
	defer calm()
	defer func() {
		if errors.Is(context.Cause(ctx), errDisturbed) {
			p.Weighed = nil
		}
	}()
	w := &kept.Weighed{Time: time.Now().UTC().Truncate(time.Second), Refuse: l.tooOldNow(p.Content), First: []kept.HeldBack{}}
	p.Weighed = w
	ix, discard, err := r.trial(ctx, v, l, p.Content)
	if err != nil {
		w.Failed = strings.ReplaceAll(err.Error(), "\n", "; ")
		return end.Err()
	}
	defer discard()
	w.Refuse = append(w.Refuse, r.wholeAgainst(l, serving, ix)...)
	held, odd := r.holdEntries(ix, r.held, func(string) bool { return false })
	for _, o := range odd {
		if o.list == l.Name {
			w.Refuse = append(w.Refuse, "an adoption would be refused: "+o.err.Error())
		}
	}
	for _, e := range held.minus(r.held).sorted() {
		if e.List != l.Name {
			continue
		}
		if w.Held++; len(w.First) < mostWeighedNames {
			w.First = append(w.First, kept.HeldBack{Entry: e.Name, Senders: e.Senders, Correspondents: e.Correspondent})
		}
	}
	if r.settings.Judge != nil && r.settings.PastMail != nil {
		if w.Mail, err = r.replay(ctx, serving, ix); err != nil {
			w.Failed = "past mail cannot be read: " + err.Error()
		}
	}
	runtime.KeepAlive(serving)
	return end.Err()
}

// unweighed reports whether a proposal waits for the next look.
func (r *Reloader) unweighed() bool {
	if r.live.Load() == nil {
		return false
	}
	for _, pin := range r.pins {
		if pin.Proposal != nil && pin.Proposal.Weighed == nil {
			return true
		}
	}
	return false
}

// tooOldNow says which files are older than the list may be.
func (l List) tooOldNow(c kept.Content) []string {
	lines := []string{}
	for _, f := range c {
		info, err := os.Stat(string(f.Path))
		if err != nil {
			continue
		}
		if at := l.date(info); l.tooOld(at, time.Now()) {
			lines = append(lines, fmt.Sprintf("%s: is of %s, older than max_age = %s", f.Path, shownTime(at), shownAge(l.MaxAge)))
		}
	}
	return lines
}

// trial puts the lists together with what one of them would have. end is to be called when it is not used any more.
func (r *Reloader) trial(ctx context.Context, v *view, l List, c kept.Content) (ix *index.Index, end func(), err error) {
	w := view{sources: slices.Clone(v.sources), contents: slices.Clone(v.contents)}
	r.repin(&w, l, kept.Pin{List: l.Name, Content: c})
	o := index.Options{Cache: r.cache(), Hashes: r.settings.Hashes, Parse: r.settings.Parse, Workers: max(1, runtime.GOMAXPROCS(0)/2)}
	if keys, _ := r.live.Load().Counts(); keys >= r.settings.updateFrom && len(r.lacks) == 0 {
		if ix, _, err := r.live.Load().Update(ctx, w.sources, o); err == nil {
			return ix, func() {}, nil
		}
	}
	draft, err := r.settings.Build(ctx, r.settings.Path, w.sources, index.Options{KeepGoing: true, LastGood: true, Cache: r.cache(), Memory: r.settings.Memory, Hashes: r.settings.Hashes}, false)
	if err != nil {
		return nil, nil, err
	}
	return draft.Index(), func() { draft.Discard() }, nil
}

// wholeAgainst are the reasons why a list would be refused whole, were its load not an operator's will. They name no sender.
func (r *Reloader) wholeAgainst(l List, serving, trial *index.Index) (lines []string) {
	trial.Withhold(r.held.in(trial).set())
	for _, o := range r.objections(trial) {
		if o.list == l.Name && o.share > maxHeldShare {
			lines = append(lines, fmt.Sprintf("would refuse %d of the %d senders accepted lately, more than a tenth of them; by %s", o.domains, o.of, o.shownEntries()))
		}
	}
	for _, p := range turned(serving.Lists(), trial.Lists()) {
		if p.list == l.Name {
			lines = append(lines, p.err.Error())
		}
	}
	if slices.ContainsFunc(r.freed(serving, trial), func(p problem) bool { return p.list == l.Name && p.class == lists.Frees }) {
		lines = append(lines, fmt.Sprintf("would lift more than max_freed = %v of the refusals of the last 7 days", l.MaxFreed))
	}
	return lines
}

// replay tells which decisions of the last days a trial would make otherwise.
func (r *Reloader) replay(ctx context.Context, serving, trial *index.Index) (*kept.MailDiff, error) {
	began := time.Now()
	m := &kept.MailDiff{Since: began.UTC().Truncate(time.Second)}
	var by [2]map[kept.MailByEntry]int
	by[0], by[1] = map[kept.MailByEntry]int{}, map[kept.MailByEntry]int{}
	count := func(all map[kept.MailByEntry]int, e index.Match) {
		key := kept.MailByEntry{Entry: e.Name(), Line: e.Line}
		if _, known := all[key]; !known {
			if len(all) >= 100*mostWeighedNames { // those that decide much come early
				return
			}
			key.Entry = strings.Clone(key.Entry)
		}
		all[key]++
	}
	err := r.settings.PastMail(ctx, began.Add(-weighDays), func(at time.Time, mail *history.Refusal) bool {
		m.Decisions++
		if at.Before(m.Since) {
			m.Since = at.UTC().Truncate(time.Second)
		}
		was, before, _ := r.settings.Judge(serving, mail)
		is, after, _ := r.settings.Judge(trial, mail)
		switch {
		case after && !before:
			m.Refused++
			count(by[0], is)
		case before && !after:
			m.Passed++
			count(by[1], was)
		}
		return m.Decisions%1000 != 0 || ctx.Err() == nil && time.Since(began) < weighMailFor
	})
	m.Refuses, m.Passes = mostMail(by[0]), mostMail(by[1])
	return m, err
}

const weighDays = 7 * 24 * time.Hour

func mostMail(all map[kept.MailByEntry]int) []kept.MailByEntry {
	most := make([]kept.MailByEntry, 0, len(all))
	for e, n := range maps.All(all) {
		e.Decisions = n
		most = append(most, e)
	}
	slices.SortFunc(most, func(a, b kept.MailByEntry) int {
		return cmp.Or(cmp.Compare(b.Decisions, a.Decisions), cmp.Compare(a.Line, b.Line), strings.Compare(a.Entry, b.Entry))
	})
	return most[:min(len(most), mostWeighedNames)]
}

// HeldBack are the entries of a list that are held back now: how many, and the first of them.
func (r *Reloader) HeldBack(list string) (n int, first []kept.HeldBack) {
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	for _, e := range held.sorted() {
		if e.List != list {
			continue
		}
		if n++; n <= mostWeighedNames {
			first = append(first, kept.HeldBack{Entry: e.Name, Senders: e.Senders, Correspondents: e.Correspondent})
		}
	}
	return n, first
}
