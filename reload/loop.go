package reload

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"time"

	"blockd/lists"
)

// state is what the loop does between two looks at the lists.
//
//	state      ends with                                          and leads to
//	resting    an event                                           settling
//	           a poll that finds a reason to look                 probing
//	settling   no event for the quiet time, or the deadline       looking
//	probing    files that rest for the wait, or the deadline      looking
//	           an event                                           settling
//	looking    its outcome                                        resting or probing, see outcomes
//	any        Now, Replaced                                      looking, at once
//
// The loop begins with probing: what changed before it ran is found by a first look.
type state int

const (
	resting  state = iota // nothing has happened
	settling              // an event told of a change, and another one would tell of the next
	probing               // there is a reason to look, and perhaps no events
	looking
)

// outcome is what a look ends with.
type outcome int

const (
	same       outcome = iota // the lists are as at the last look, or are refused as then
	unfinished                // a file is being written, or another process builds: it passes by itself
	unchanged                 // the lists are again, or still, those that serve
	found                     // by Open: the index on disk is a generation of these lists
	adopted                   // the index on disk was compiled from these lists by another process
	updated                   // a small change serves from memory
	built                     // a new generation serves
	folded                    // what served from memory is built
	yielded                   // that build has given way to a change of a file
	refused                   // by a source or by the gate
	failed                    // to read or write the index
)

// outcomes says what each leads to. Where none is swapped in, what served goes on serving.
//
// Status shows the problems that the outcome came with, and each is logged once as "lists
// refused"; their end is logged as "lists are in order again". Of unfinished nothing is shown
// yet. A problem that passes by itself leads to another look soon, whatever the outcome.
var outcomes = [...]struct {
	swap  string // "how" of the log line "lists swapped in"; "": none is swapped in
	count string // "result" of blockd_reloads_total; "": not counted
	next  state  // probing: another look comes soon, after pauses that grow
}{
	same:       {"", "", resting},
	unfinished: {"", "", probing},
	unchanged:  {"", "unchanged", resting}, // an operator who asked is told "nothing changed"
	found:      {"found on disk", "", resting},
	adopted:    {"compiled by another process", "swapped", resting},
	updated:    {"updated", "swapped", probing}, // the build is owed
	built:      {"built", "swapped", resting},
	folded:     {"built", "unchanged", resting},
	yielded:    {"", "", probing},
	refused:    {"", "refused", resting}, // not counted again as long as the problems are the same
	failed:     {"", "failed", resting},
}

// loop decides when to look. It knows nothing of files.
type loop struct {
	quiet, poll time.Duration

	due   func() bool                    // at every poll: is there a reason to look?
	moved func() bool                    // has a file changed since due, moved or look was last called?
	look  func(forced bool) (next state) // see outcomes

	state    state
	timer    *time.Timer // of settling and probing
	deadline time.Time   // of settling and probing together
	retries  int         // looks in a row that led to probing
}

// maxWait bounds settling and probing to so many quiet times: a file that is written
// without a pause is still read, and so is one whose neighbour is.
const maxWait = 10

// run returns when ctx ends. replaced is told by Replaced, asked by Now.
func (l *loop) run(ctx context.Context, events, replaced, asked <-chan struct{}) {
	l.timer = time.NewTimer(l.quiet)
	defer l.timer.Stop()
	poll := time.NewTicker(l.poll)
	defer poll.Stop()
	l.wait(probing, l.quiet)
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			l.wait(settling, l.quiet)
		case <-poll.C:
			if l.state == resting && l.due() {
				l.wait(probing, l.quiet)
			}
		case <-l.timer.C:
			if l.state == probing && time.Now().Before(l.deadline) && l.moved() {
				l.wait(probing, l.quiet)
			} else {
				l.lookNow(false)
			}
		case <-replaced:
			l.timer.Stop()
			l.lookNow(false)
		case <-asked:
			l.timer.Stop()
			l.lookNow(true)
		}
	}
}

// wait goes to settling or probing, from where the loop looks after d.
func (l *loop) wait(next state, d time.Duration) {
	if l.state == resting || l.state == looking {
		l.deadline = time.Now().Add(maxWait * l.quiet)
	}
	l.state = next
	l.timer.Reset(min(d, time.Until(l.deadline)))
}

func (l *loop) lookNow(forced bool) {
	l.state = looking
	if l.look(forced) == resting {
		l.state, l.retries = resting, 0
		return
	}
	l.retries = min(l.retries+1, 4) // 1, 2, 4 and 8 quiet times, then the deadline
	l.wait(probing, l.quiet<<(l.retries-1))
}

// look brings the lists as they are now into service, if it may. forced reads every file
// anew. The error is that of a failed look; it does not matter while a generation serves.
func (r *Reloader) look(ctx context.Context, forced bool) (next state, err error) {
	if forced {
		r.files.forget()
		r.decidedOn, r.failures = nil, 0
		r.mu.Lock()
		r.askers, r.waiting = append(r.askers, r.waiting...), nil
		r.mu.Unlock()
	}
	before := r.live.Load()
	defer func() {
		// A file that is being written, or a build that has given way, is looked at again in a moment: they wait for that.
		if swapped := r.live.Load() != before; len(r.young) == 0 && (swapped || next == resting || len(r.problems) > 0) {
			for _, done := range r.askers {
				done <- swapped
			}
			r.askers = nil
			r.mu.Lock()
			r.status.Looked = r.status.LastAttempt
			r.mu.Unlock()
		}
	}()
	out, problems := r.decide(ctx)
	if err := ctx.Err(); err != nil {
		return resting, err // the end of the daemon is no fault of a list
	}
	r.age(time.Now())
	switch out {
	case failed:
		err = problems[0].err
		if !slices.ContainsFunc(problems, problem.passes) {
			r.failures, r.failedAt, r.failedOn = r.failures+1, time.Now(), r.seen.contents
		}
	case same, unfinished, yielded: // nothing was tried
	default:
		r.failures = 0
	}
	if out == unfinished || out == yielded || out == failed {
		r.noted = [2]os.FileInfo{} // it is still to be taken up
	}
	if r.live.Load() == nil {
		return resting, err // Open returns it
	}
	if next = r.conclude(out, problems, forced, len(r.askers) == 0); next == resting && r.unweighed() {
		next = probing
	}
	return next, err
}

// decide finds the outcome of a look: the first case that applies. It returns why the lists
// as they are now do not serve, or not all of them. Conclude makes that known.
func (r *Reloader) decide(ctx context.Context) (outcome, []problem) {
	began := time.Now()
	r.mu.Lock()
	r.status.LastAttempt = began
	r.mu.Unlock()
	v := r.view(ctx, began)
	if r.following.Load() {
		return r.follow(ctx, v)
	}
	r.refusals = r.readRefusals(ctx)
	r.propose(ctx, &v) // weighs by them
	serving := r.live.Load()
	asBefore := r.decidedOn != nil && slices.Equal(v.contents, r.decidedOn)
	noted := r.readNote()
	r.urged = noted
	switch {
	case asBefore && len(r.problems) == 0 && len(r.young) == 0 && len(v.faults) == 0 && !r.owes() && !noted:
		return same, nil
	case !noted && serving != nil && len(r.lacks) == 0 && serving.Hashes() == r.settings.Hashes && slices.Equal(v.contents, contents(serving.Lists(), nil, nil)):
		if serving.Updated() {
			return r.fold(ctx, v)
		}
		r.decidedOn = v.contents
		return unchanged, nil
	case r.adopt(v, noted):
		return adopted, nil
	case noted: // what is not adopted whole is built with what is accepted
	case asBefore && slices.ContainsFunc(r.young, func(p problem) bool { return began.Before(p.rests()) }):
		return same, r.young
	case asBefore && r.told(v.faults) && len(r.young) == 0 && !slices.ContainsFunc(r.problems, func(p problem) bool {
		return acceptable(p.class) && p.class != lists.Correspondents && r.isMeant(p.list) // by now
	}):
		return same, r.problems
	case r.rests(began) && slices.Equal(v.contents, r.failedOn):
		return same, r.problems
	}
	r.decidedOn = nil
	if serving != nil && !noted && r.hopeless(v) {
		return refused, v.faults
	}
	if r.settings.Renew != nil && r.settings.Renew(ctx) {
		v = r.view(ctx, began)
	}
	switch out := r.update(ctx, v); out {
	case updated:
		return updated, nil
	case unfinished:
		return unfinished, r.problems
	}
	return r.build(ctx, v)
}

// maxUnfinished is how many looks in a row may meet a file that changes under them before
// that is called a problem. With the pauses between them it is some 4 s.
const maxUnfinished = 4

// conclude makes an outcome known, unless it may pass by itself. It returns the loop's next
// state. tell is whether nobody else says that nothing has changed.
func (r *Reloader) conclude(out outcome, problems []problem, forced, tell bool) (next state) {
	next, r.young = outcomes[out].next, nil
	if slices.ContainsFunc(problems, func(p problem) bool { return !p.rests().IsZero() }) {
		r.young = problems
	}
	if !slices.ContainsFunc(problems, problem.passes) {
		r.unfinished = 0
	} else {
		if next = probing; r.young == nil {
			r.decidedOn = nil
		}
		if r.unfinished++; r.unfinished < maxUnfinished && outcomes[out].count != "swapped" {
			return outcomes[unfinished].next
		}
	}
	news := r.report(problems, forced)
	if forced && tell && out == unchanged {
		r.log.Info("nothing changed", slog.String("generation", r.live.Load().Generation()))
	}
	if out != refused || news || forced {
		r.metrics.attempt(outcomes[out].count, len(problems) == 0)
	}
	return next
}
