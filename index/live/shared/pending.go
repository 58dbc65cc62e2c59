package shared

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"blockd/index/live"
	"blockd/records/audit"
)

// pending is a change that was made on this machine alone.
type pending struct {
	Row  live.Row `json:"row"`
	Base uint64   `json:"base"` // the revision that it replaced; 0 = there was nothing
}

// refused is a change that was made on this machine alone, and that the engine refuses for good: it acts here alone.
type refused struct {
	Row live.Row  `json:"row"`
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

const (
	mostPending  = 10_000
	mostRefused  = 100 // that are kept to be shown
	offeredAlone = 100 // pending changes are offered together
)

// keepPending keeps changes that this machine is about to make alone.
func (n *Node) keepPending(wants []live.Want) error {
	k := &n.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	before, at := k.Pending, make(map[[16]byte]int, len(k.Pending))
	after := slices.Clone(before)
	for i := range after {
		at[print(&after[i].Row)] = i
	}
	replaced := map[int]bool{}
	for _, w := range wants {
		p, id := pending{Row: w.Row}, print(&w.Row)
		if here := n.o.Set.Get(&w.Row); here != nil {
			p.Base = here.Rev
		}
		if i, there := at[id]; there {
			p.Base = after[i].Base
			replaced[i] = true
		}
		at[id] = len(after)
		after = append(after, p)
	}
	kept := after[:0]
	for i := range after {
		if !replaced[i] {
			kept = append(kept, after[i])
		}
	}
	if len(kept) > mostPending {
		return fmt.Errorf("%d changes wait for the store already", len(before))
	}
	k.Pending = kept
	if err := k.write(); err != nil {
		k.Pending = before
		return err
	}
	return nil
}

// isPending returns the base of the change of an entry that waits, by print. The map is that of one moment.
func (n *Node) isPending() map[[16]byte]uint64 {
	n.kept.mu.Lock()
	defer n.kept.mu.Unlock()
	if len(n.kept.Pending) == 0 {
		return nil
	}
	all := make(map[[16]byte]uint64, len(n.kept.Pending))
	for i := range n.kept.Pending {
		all[print(&n.kept.Pending[i].Row)] = n.kept.Pending[i].Base
	}
	return all
}

// offerPending makes the changes that were made on this machine alone for all. One of an entry that another machine has
// changed meanwhile is given up: that change is in force here already. The caller has the engine.
func (n *Node) offerPending(ctx context.Context) error {
	for {
		n.kept.mu.Lock()
		some := slices.Clone(n.kept.Pending[:min(offeredAlone, len(n.kept.Pending))])
		n.kept.mu.Unlock()
		if len(some) == 0 {
			return nil
		}
		given, err := n.offerTogether(ctx, some)
		if len(some) > 1 && (errors.Is(err, ErrRefused) || err == nil && slices.ContainsFunc(given, func(g live.Given) bool { return g.Conflict })) {
			some = some[:1]
			given, err = n.offerTogether(ctx, some)
		}
		var no *refused
		switch {
		case errors.Is(err, ErrRefused):
			if no, err = n.setAside(&some[0].Row, err); err != nil {
				return err
			}
		case err != nil:
			return err
		case given[0].Conflict:
			if err := n.giveUp(&some[0].Row, given[0].Was); err != nil {
				return err
			}
		}
		if err := n.follow(ctx); err != nil {
			return err
		}
		n.kept.mu.Lock()
		n.kept.Pending = slices.Clone(n.kept.Pending[len(some):]) // what came meanwhile is behind these
		if no != nil {
			n.kept.Refused = append(n.kept.Refused, *no)
			n.kept.Refused = n.kept.Refused[max(0, len(n.kept.Refused)-mostRefused):]
		}
		err = n.kept.write()
		n.kept.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (n *Node) offerTogether(ctx context.Context, some []pending) ([]live.Given, error) {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	wants := make([]live.Want, len(some))
	for i := range some {
		wants[i] = live.Want{Row: some[i].Row, IfRev: &some[i].Base}
	}
	written, err := n.o.Engine.Write(ctx, wants, live.Terms{})
	return written.Given, err
}

// giveUp takes what another machine has made of an entry; was is nil if it is gone.
func (n *Node) giveUp(row, was *live.Row) error {
	if was != nil && was.SameContent(row) || was == nil && row.Gone != 0 {
		return nil // its answer had got lost
	}
	n.counts.conflicts.Add(1)
	n.o.Log.Warn("a live entry that was changed on this machine alone has changed elsewhere, which counts", slog.String("entry", row.String()), slog.String("change_by", row.By))
	if here := n.o.Set.Get(row); was == nil && here != nil && here.Rev == 0 {
		gone := *row
		gone.Gone, gone.By = 1, "" // nothing tells of it any more
		return n.takeRows([]live.Row{gone}, n.o.Set.Cursor(), true)
	}
	return nil
}

// setAside notes a change that the engine will never take. It goes on acting on this machine.
func (n *Node) setAside(row *live.Row, why error) (*refused, error) {
	n.counts.refused.Add(1)
	n.o.Log.Error("a live entry that was changed on this machine alone is refused by the store, and acts here alone", slog.String("entry", row.String()), slog.String("change_by", row.By), slog.Any("error", why))
	what := audit.EntryAdd
	if row.Gone != 0 {
		what = audit.EntryRemove
	}
	err := n.o.Audit.Add(audit.Line{By: audit.Author(audit.Daemon, row.By), Action: audit.Failed, Subject: row.Action + " " + row.Entry, Detail: fmt.Sprintf("%s for the fleet: %v", what, why)})
	return &refused{Row: *row, Why: why.Error(), At: time.Now().UTC().Truncate(time.Second)}, err
}
