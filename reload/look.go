package reload

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"blockd/index"
	"blockd/lists"
)

// result is a word of blockd_reloads_total{result}.
type result string

const (
	swapped   result = "swapped"   // a new generation serves
	unchanged result = "unchanged" // the lists are again, or still, those that serve
	refused   result = "refused"   // by a source or by the gate: the old one serves
	failed    result = "failed"    // to write or read the index: the old one serves
	same      result = ""          // as at the last look: not counted
)

// patience is how many looks in a row may meet a file that changes under them
// before that is called a problem. With the pauses of pace it is some 4 s.
const patience = 4

// look brings the lists as they are now into service, if it may. forced reads
// every file anew. again asks for another look soon: a file was being written.
// The error is that of a failed look, and of no consequence while one serves.
func (r *Reloader) look(ctx context.Context, forced bool) (again bool, err error) {
	if forced {
		r.files.forget()
		r.settled = nil
	}
	got, problems := r.try(ctx)
	if err := ctx.Err(); err != nil {
		return false, err // the end of the daemon is no fault of a list
	}
	r.age(time.Now())
	if got == failed {
		err = problems[0].err
	}
	if r.live.Load() == nil {
		return false, err // Open says so
	}
	again = r.judge(got, problems, forced)
	return again || r.owes() && len(problems) == 0, err
}

// judge makes the outcome of a look known, unless it may pass by itself.
func (r *Reloader) judge(got result, problems []problem, forced bool) (again bool) {
	if slices.ContainsFunc(problems, problem.passing) {
		again, r.settled = true, nil
		r.changing++
	} else {
		r.changing = 0
	}
	if again && got != swapped && r.changing < patience {
		return again
	}
	news := r.report(problems, forced)
	if forced && got == unchanged {
		r.log.Info("nothing changed", slog.String("generation", r.live.Load().Generation()))
	}
	if got == refused && !news && !forced {
		got = same
	}
	r.metrics.attempt(got, len(problems) == 0)
	return again
}

// passing reports whether p will pass by itself, and soon.
func (p problem) passing() bool {
	return errors.Is(p.err, lists.ErrChanged) || errors.Is(p.err, index.ErrLocked)
}

// try is look without its reports. It returns why the lists as they are now do
// not serve, or not all of them.
func (r *Reloader) try(ctx context.Context) (result, []problem) {
	began := time.Now()
	r.mu.Lock()
	r.status.LastAttempt = began
	r.mu.Unlock()
	sources, faults := expand(r.settings.Lists)
	now, unreadable := r.files.read(ctx, sources)
	faults = append(faults, unreadable...)
	r.seen, r.stamps = now, r.files.seen
	serving := r.live.Load()
	r.refusals = r.readRefusals(ctx)
	settled := r.settled != nil && slices.Equal(now, r.settled)
	if settled && len(r.problems) == 0 && len(faults) == 0 && !r.owes() && !r.noteMoved() {
		return same, nil
	}
	if r.noteMoved() && r.adopt(now) {
		r.settled = now
		return swapped, nil
	}
	if serving != nil && len(r.lacks) == 0 && slices.Equal(now, contents(serving.Lists(), nil, nil)) {
		if serving.Updated() {
			return r.fold(ctx, sources, now, began)
		}
		r.settled = now
		return unchanged, nil
	}
	if r.adopt(now) {
		r.settled = now
		return swapped, nil
	}
	if settled && r.told(faults) {
		return same, r.problems // the same content is refused again
	}
	r.settled = nil
	if serving != nil && r.hopeless(sources, now, faults) {
		return refused, faults
	}
	if r.settings.Renew != nil && r.settings.Renew(ctx) {
		sources, faults = expand(r.settings.Lists)
		now, unreadable = r.files.read(ctx, sources)
		faults = append(faults, unreadable...)
		r.seen, r.stamps = now, r.files.seen
	}
	if r.update(ctx, sources, faults, began) {
		r.settled = contents(r.live.Load().Lists(), nil, now)
		return swapped, nil
	}
	return r.build(ctx, sources, faults, now, began)
}

// build makes a new generation of the lists as they are now serve, and publishes
// it, if it may. It returns as try does.
func (r *Reloader) build(ctx context.Context, sources []index.Source, faults []problem, now []content, began time.Time) (result, []problem) {
	draft, g, why, err := r.draft(ctx, sources, faults)
	if err != nil {
		return failed, buildProblems(err)
	}
	if draft == nil {
		r.settle(sources, now)
		return refused, why
	}
	defer draft.Discard()
	if err := r.keepHeld(r.alsoHeld(g)); err != nil { // before anybody can open the new file
		return failed, []problem{{err: err}}
	}
	if err := draft.Publish(); err != nil {
		return failed, []problem{{err: err}}
	}
	g.ix, g.bytes, g.seconds = draft.Index(), draft.Report.Bytes, time.Since(began).Seconds()
	r.serve(g, "built")
	r.forgetHeld()
	if seen := contents(draft.Report.Lists, g.unread(), now); len(g.held) > 0 {
		r.settle(sources, seen)
	} else {
		r.settled = seen
	}
	return swapped, g.problems()
}

// settle notes that now led to a refusal, if it is what was built: a file that has
// changed since it was hashed may have been refused for what it held in between.
func (r *Reloader) settle(sources []index.Source, now []content) {
	if !r.files.moved(sources) {
		r.settled = now
	}
}

// adopt takes over an index that another process has published at our path and
// that holds the lists as they are now: what `blockd compile` has made need not
// be made again, and what it made with --accept need not pass the gate. Who
// compiles does not ask those who wrote lately: here they are asked, but about lists
// that were accepted.
func (r *Reloader) adopt(now []content) bool {
	if r.live.Load() == nil || len(r.problems) == 0 && r.settled != nil && !r.noteMoved() {
		return false // nothing was refused or held back, so nobody had reason to
	}
	r.noted = r.noteStamps()
	note := readAcceptance(r.settings.Path)
	g := r.onDisk()
	if g == nil || g.ix.Generation() == r.live.Load().Generation() || len(g.lacks) > 0 || !g.holds(r.settings.Lists) ||
		!slices.Equal(now, contents(g.ix.Lists(), nil, nil)) {
		return false
	}
	accepted := func(list string) bool { return note.covers(g.ix.Generation(), list) }
	freed := slices.DeleteFunc(r.freed(r.live.Load(), g.ix), func(p problem) bool { return accepted(p.list) })
	var odd []problem
	if g.withheld, odd = r.holdEntries(g.ix, r.held.without(accepted), accepted); len(odd)+len(freed) > 0 {
		return false
	}
	for _, p := range r.problems {
		if acceptable(p.class) {
			r.log.LogAttrs(context.Background(), slog.LevelWarn, "lists accepted", slog.String("list", p.list),
				slog.String("class", string(p.class)), slog.String("error", p.err.Error()),
				slog.Time("built", g.ix.Built()), slog.Time("previous_built", r.live.Load().Built()))
		}
	}
	r.serve(g, "compiled by another process")
	r.forgetHeld()
	return true
}

// forgetHeld writes down what is held in the index file that serves, and nothing more.
func (r *Reloader) forgetHeld() {
	if err := r.keepHeld(r.held); err != nil {
		r.log.Error("entries that are held back are not noted", slog.Any("error", err))
	}
}

// onDisk opens the index at our path, or returns nil. A damaged one is told of
// and then built anew like a missing one.
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
