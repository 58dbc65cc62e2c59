package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"blockd/index/live"
	"blockd/records/audit"
)

// The times of a node.
const (
	writeLimit  = 3 * time.Second  // of a change, with the wait for its turn
	pageLimit   = 15 * time.Second // of one question
	readLimit   = 10 * time.Minute // of everything
	pollEvery   = 5 * time.Second  // if no hint comes
	retryFrom   = 250 * time.Millisecond
	retryTo     = 5 * time.Second
	sumEvery    = time.Minute
	pageRows    = 1000
	mostRemoved = 10_000
	clockMargin = 5 * time.Second // a clock that is off by more is a problem

	// knownFor is for how long a node may be away and still learn of all that was removed meanwhile.
	knownFor = KeepGone - 12*time.Hour

	// WritesFor is how long tokens of scope write are valid without the engine.
	WritesFor = 15 * time.Minute
)

// Options say what a Node shares.
type Options struct {
	Engine Engine
	Kind   string    // "postgres" or "redis"
	Name   string    // who shares what
	Alone  bool      // a change is made on this machine alone while the engine is away, and offered later
	Folder string    // of the files of the node, which is that of the live entries
	Set    *live.Set // what the node changes
	Log    *slog.Logger
	Audit  *audit.Log              // has a line for each change of this machine that the engine refuses for good; nil = none is written
	Token  func(line string) error // why a line of the file of tokens is none; nil = each is one
	Key    string                  // what the fleet's machines know and the engine does not, by which tokens are proved; "" = no token of the fleet is valid here
	Clock  func() time.Time        // nil: time.Now

	Poll     time.Duration // how often the engine is asked if no hint comes; 0 = 5 s
	SumEvery time.Duration // how often all is compared; 0 = a minute
}

// Node keeps the live entries of one machine equal to those of the fleet. Its methods may be called from several goroutines
// at once. A nil Node shares nothing.
type Node struct {
	o     Options
	turn  chan struct{} // has a value while the engine is in use
	woken chan struct{} // Run looks again

	mu      sync.Mutex
	kept    kept
	lost    losses
	fault   error     // why the engine does not answer; nil = it does
	since   time.Time // when that began
	tried   bool      // the engine was asked at all
	runs    bool      // Run follows the engine
	offset  time.Duration
	told    bool // that the clock is off
	left    leftOut
	recent  recent
	removed map[[16]byte]uint64 // revisions of the last removals that were taken, at most mostRemoved
	differs int                 // how often in turn the sums have differed
	anew    bool                // everything is read again, for the tokens: their file is of another key, or of none
	rev     uint64
	top     uint64 // the highest revision that was given to this machine, if the changes before it are still to be read

	counts counts
}

type counts struct{ lost, unread, differed, conflicts, refused, writes, failures atomic.Uint64 }

// Open reads what a node has kept. It does not connect: a start waits for no engine. From now on changes of the Set go to
// the engine.
func Open(o Options) (*Node, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.Poll, o.SumEvery = cmp.Or(o.Poll, pollEvery), cmp.Or(o.SumEvery, sumEvery)
	n := &Node{o: o, turn: make(chan struct{}, 1), woken: make(chan struct{}, 1), removed: map[[16]byte]uint64{}, rev: o.Set.Cursor().Revision}
	n.recent.from = n.rev
	if err := cmp.Or(n.read(), n.dropTokens()); err != nil {
		return nil, err
	}
	o.Set.SetShare(n.share)
	return n, nil
}

// read reads what a node has kept.
func (n *Node) read() error { return cmp.Or(n.kept.read(n.o.Folder), n.lost.read(n.o.Folder)) }

// Close ends the connections.
func (n *Node) Close() {
	if n != nil {
		n.o.Engine.Close()
	}
}

// take takes the engine; release gives it back.
func (n *Node) take(ctx context.Context) error {
	select {
	case n.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: another change or a full read is under way", live.ErrAway)
	}
}

func (n *Node) release() { <-n.turn }

// Run follows the engine until ctx ends, and then returns nil.
func (n *Node) Run(ctx context.Context) error {
	if n == nil {
		return nil
	}
	if err := n.read(); err != nil { // another process may have written it since
		n.o.Log.Error("shared live entries", slog.Any("error", err))
	}
	n.mu.Lock()
	n.runs = true
	n.mu.Unlock()
	var summed time.Time
	pause := retryFrom
	for ctx.Err() == nil {
		err := n.look(ctx)
		if err == nil && time.Since(summed) >= n.o.SumEvery {
			if err = n.reconcile(ctx); err == nil {
				summed = time.Now()
			}
		}
		if errors.Is(err, live.ErrYielded) {
			return nil
		}
		if ctx.Err() != nil {
			break
		}
		n.answered(err)
		wait := n.o.Poll
		if err != nil {
			wait, pause = pause, min(2*pause, retryTo)
		} else {
			pause = retryFrom
		}
		n.wait(ctx, min(wait, n.o.SumEvery), err == nil)
	}
	return nil
}

// wait returns at a hint, or after a time.
func (n *Node) wait(ctx context.Context, limit time.Duration, hints bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	hint := make(chan struct{})
	if hints {
		go func() {
			defer close(hint)
			n.o.Engine.Wait(ctx)
		}()
		defer func() { <-hint }() // one goroutine waits at a time
	}
	select {
	case <-ctx.Done():
	case <-hint:
	case <-n.woken:
	}
	cancel()
}

// look takes what has changed, after it has offered what was changed on this machine alone.
func (n *Node) look(ctx context.Context) error {
	if err := n.take(ctx); err != nil {
		return err
	}
	defer n.release()
	if err := n.follow(ctx); err != nil {
		return err
	}
	return n.offerPending(ctx)
}

// answered notes whether the engine has answered.
func (n *Node) answered(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.fault
	n.tried = true
	switch {
	case err == nil && was != nil:
		n.o.Log.Info("shared live entries: the store answers again", slog.String("store", n.o.Engine.String()), slog.Duration("after", time.Since(n.since)))
		n.fault = nil
	case err != nil:
		n.counts.failures.Add(1)
		if was == nil {
			n.since = time.Now()
			n.o.Log.Error("shared live entries: the store does not answer", slog.String("store", n.o.Engine.String()), slog.Any("error", err))
		}
		n.fault = err
	}
}

// share is the live.Share of the node's Set.
func (n *Node) share(ctx context.Context, wants []live.Want, terms live.Terms) ([]live.Given, error) {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	n.mu.Lock()
	err := n.fault // Run finds out when it answers again; until then nobody waits for it
	n.mu.Unlock()
	if err != nil {
		return nil, n.away(wants, err)
	}
	if err := n.take(ctx); err != nil {
		return nil, err
	}
	defer n.release()
	n.counts.writes.Add(1)
	written, err := n.o.Engine.Write(ctx, wants, terms)
	switch {
	case errors.Is(err, live.ErrOwnerFull):
		return nil, err
	case errors.Is(err, live.ErrChanged): // this machine is behind: who asks again is to get what there is now
		if err := n.follow(ctx); err != nil && !errors.Is(err, live.ErrYielded) {
			n.answered(err)
			n.wake()
		}
		return nil, err
	case errors.Is(err, ErrRefused):
		return nil, fmt.Errorf("%w: %w", live.ErrInvalid, err)
	case err != nil:
		n.answered(err)
		n.wake()
		return nil, n.away(wants, err)
	}
	n.answered(nil)
	for i := range written.Given {
		written.Given[i].Replicas = written.Replicas
	}
	n.catchUp(ctx, wants, written.Given)
	return written.Given, nil
}

// catchUp takes what the engine has changed, with what it was just given. The caller has the engine.
func (n *Node) catchUp(ctx context.Context, wants []live.Want, given []live.Given) {
	err := n.follow(ctx)
	if err == nil || errors.Is(err, live.ErrYielded) {
		return
	}
	n.answered(err)
	n.wake()
	// The change is acknowledged. So it is known here, too: else nobody could tell if the engine lost it.
	if err := n.takeGiven(wants, given); err != nil && !errors.Is(err, live.ErrYielded) {
		n.o.Log.Error("a change that the store has made cannot be written here", slog.Any("error", err))
	}
}

// takeGiven takes changes that the engine has made. What came before them is still to be read, so the cursor stays.
func (n *Node) takeGiven(wants []live.Want, given []live.Given) error {
	var rows []live.Row
	for i := range given {
		if given[i].Rev != 0 {
			row := wants[i].Row
			row.Rev = given[i].Rev
			rows = append(rows, row)
		}
	}
	if err := n.takeRows(rows, n.o.Set.Cursor(), false); err != nil {
		return err
	}
	n.noteRemoved(rows)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range rows {
		n.top = max(n.top, rows[i].Rev)
	}
	return nil
}

// away is the error of a change while the engine is away: live.ErrAlone after the change was kept to be offered later.
func (n *Node) away(wants []live.Want, err error) error {
	if !n.o.Alone {
		return fmt.Errorf("%w: %w (live.on_outage = \"refuse\")", live.ErrAway, err)
	}
	if slices.ContainsFunc(wants, func(w live.Want) bool { return !n.o.Set.Fits(&w) }) {
		return live.ErrAlone // this machine refuses it too, so it is not offered later
	}
	if kept := n.keepPending(wants); kept != nil {
		return fmt.Errorf("%w: %w", live.ErrUnwritable, kept)
	}
	n.o.Log.Warn("live entries changed on this machine alone", slog.Int("changes", len(wants)), slog.Any("error", err))
	return live.ErrAlone
}

func (n *Node) wake() {
	select {
	case n.woken <- struct{}{}:
	default:
	}
}

// clock takes the engine's time, which was asked for between two moments of this machine.
func (n *Node) clock(engine, before, after time.Time) {
	offset := engine.Sub(before.Add(after.Sub(before) / 2))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offset = offset
	n.o.Set.SetOffset(offset)
	if off := offset.Abs() > clockMargin; off != n.told {
		if n.told = off; off {
			n.o.Log.Warn("the clock of this machine is off: live entries end by the clock of the store", slog.Duration("store_is_ahead_by", offset.Round(time.Millisecond)))
		}
	}
}
