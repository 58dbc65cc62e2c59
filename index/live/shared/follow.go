package shared

import (
	"cmp"
	"context"
	"encoding/binary"
	"log/slog"

	"github.com/zeebo/xxh3"

	"blockd/index/live"
)

// origin names an engine's rows in the Cursor of a Set.
func (n *Node) origin(epoch string) string { return n.o.Kind + "/" + n.o.Name + "/" + epoch }

// page asks for the changes since a revision.
func (n *Node) page(ctx context.Context, since uint64) (Page, error) {
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	before := n.o.Clock()
	p, err := n.o.Engine.Changes(ctx, since, pageRows)
	if err == nil {
		n.clock(p.Now, before, n.o.Clock())
	}
	return p, err
}

// follow takes all changes since the Set's cursor. The caller has the engine.
func (n *Node) follow(ctx context.Context) error {
	for {
		c := n.o.Set.Cursor()
		p, err := n.page(ctx, c.Revision)
		if err != nil {
			return err
		}
		if seen := n.kept.seenAt(); c.Origin != n.origin(p.Epoch) || c.Reading || n.anew || p.Rev < max(c.Revision, n.given()) || p.TooOld || !seen.IsZero() && p.Now.Sub(seen) > knownFor {
			if err := n.readAll(ctx, p); err != nil {
				return err
			}
			n.anew = false
			continue
		}
		to := c
		to.Revision = max(to.Revision, p.To)
		n.noteBad(p.Bad)
		if err := n.takeRows(p.Rows, to, false); err != nil {
			return err
		}
		n.noteRemoved(p.Rows)
		if err := n.kept.sees(p.Now); err != nil {
			return err
		}
		n.mu.Lock()
		if n.rev = to.Revision; n.rev >= n.top {
			n.top = 0
		}
		n.mu.Unlock()
		n.note(&p)
		if !p.More {
			return nil
		}
	}
}

func (n *Node) given() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.top
}

// takeRows gives rows to the Set, and tokens to their file. Always says that they are of a full read, which knows by itself what was lost.
func (n *Node) takeRows(rows []live.Row, to live.Cursor, always bool) error {
	entries := make([]live.Row, 0, len(rows))
	var tokens []live.Row
	for _, r := range rows {
		if r.Scope == ScopeToken {
			tokens = append(tokens, r)
		} else {
			entries = append(entries, r)
		}
	}
	if len(tokens) > 0 { // first: what the cursor says is then in both
		if err := n.takeTokens(tokens, false); err != nil {
			return err
		}
	}
	if !always {
		if err := n.lost.settle(rows); err != nil {
			return err
		}
	}
	taken, err := n.o.Set.Take(entries, to, always)
	if err != nil {
		return err
	}
	n.noteLeft(entries, taken.Left)
	for _, o := range taken.Outcomes {
		n.o.Log.Debug("live entry of the fleet", slog.Any("entry", o.Entry), slog.Any("was", o.Was))
	}
	return nil
}

// noteRemoved remembers removals, which leave nothing in the Set: so it is noticed when the engine loses one.
func (n *Node) noteRemoved(rows []live.Row) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range rows {
		if r := &rows[i]; r.Gone != 0 {
			if len(n.removed) >= mostRemoved {
				clear(n.removed)
			}
			n.removed[print(r)] = r.Rev
		} else if r.Gone == 0 && len(n.removed) > 0 {
			delete(n.removed, print(r))
		}
	}
}

// removedAfter reports whether this machine has taken a removal of what a row is about, with a higher revision.
func (n *Node) removedAfter(row *live.Row) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	after := n.removed[print(row)] > row.Rev
	if after {
		delete(n.removed, print(row)) // it is told of once
	}
	return after
}

// identity names what a row is about.
func identity(r *live.Row) string { return r.Owner + "\x1f" + r.Entry + "\x1f" + r.Scope }

// print is a short name of what a row is about.
func print(r *live.Row) [16]byte {
	h := xxh3.HashString128(identity(r))
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], h.Lo)
	binary.LittleEndian.PutUint64(b[8:], h.Hi)
	return b
}

// readAll makes the Set's shared entries those of the engine, of which p is the newest page, and notes what the engine has
// lost of what the Set had. The caller has the engine.
func (n *Node) readAll(ctx context.Context, p Page) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	old, origin := n.o.Set.Cursor(), n.origin(p.Epoch)
	r := reading{n: n, old: old, same: old.Origin == origin, seen: map[[16]byte]struct{}{}, pending: n.isPending()}
	// After a long time a row that is missing may have been removed, and the removal forgotten.
	seen := n.kept.seenAt()
	r.known = !seen.IsZero() && p.Now.Sub(seen) <= knownFor
	begun := old
	if begun.Reading = true; begun.Origin == "" {
		begun.Origin = origin
	}
	n.o.Log.Info("shared live entries: everything is read", slog.String("store", n.o.Engine.String()), slog.Uint64("revision", p.Rev), slog.Uint64("had", old.Revision), slog.Bool("another_store", old.Origin != "" && !r.same))
	r.cursor = begun
	if err := n.takeRows(nil, begun, false); err != nil {
		return err
	}
	n.mu.Lock()
	n.left = leftOut{}
	n.top = 0
	n.mu.Unlock()
	if err := n.o.Engine.All(ctx, r.page); err != nil {
		return err
	}
	if err := r.missing(); err != nil {
		return err
	}
	if err := n.takeTokens(r.tokens, true); err != nil {
		return err
	}
	if r.lost > 0 {
		n.o.Log.Error("shared live entries: the store has lost changes that were acknowledged; see blockd live lost", slog.Int("changes", r.lost), slog.String("first", r.first.String()))
	}
	if err := n.takeRows(nil, live.Cursor{Origin: origin, Revision: p.Rev}, false); err != nil {
		return err
	}
	n.noteAll(p.Epoch, p.Rev)
	return n.kept.sees(p.Now)
}

// reading is a reading of everything.
type reading struct {
	n       *Node
	old     live.Cursor
	cursor  live.Cursor // while it is under way
	same    bool        // the engine's rows are those that the Set had
	known   bool        // the engine still has each row that was removed since the Set had its changes
	seen    map[[16]byte]struct{}
	pending map[[16]byte]uint64 // the bases of changes of this machine alone, which are offered after the reading
	tokens  []live.Row
	lost    int
	first   live.Row // of what was lost
}

// lose notes what was lost, before it is taken out of force: a crash in between does not hide it.
func (r *reading) lose(rows []live.Row) error {
	if len(rows) == 0 {
		return nil
	}
	if err := r.n.lost.lose(rows); err != nil {
		return err
	}
	if r.lost == 0 {
		r.first = rows[0]
	}
	r.lost += len(rows)
	r.n.counts.lost.Add(uint64(len(rows)))
	return nil
}

// page compares some rows with the Set, and takes them.
func (r *reading) page(rows []live.Row, bad []string) error {
	r.n.noteBad(bad)
	take := make([]live.Row, 0, len(rows))
	var lost, newer []live.Row
	for i := range rows {
		row := &rows[i]
		if row.Scope == ScopeToken {
			if row.Gone == 0 && r.n.removedAfter(row) {
				lost = append(lost, goneOf(row))
			}
			if len(r.tokens) < 10*mostTokens {
				r.tokens = append(r.tokens, *row)
			} else if row.Gone == 0 {
				r.n.noteToken(row.Entry, errTokens)
			}
			continue
		}
		r.seen[print(row)] = struct{}{}
		if base, waits := r.pending[print(row)]; waits && (row.Rev == base || base == 0 && row.Gone != 0) {
			continue // what this machine has made of it is offered, and acts until then
		}
		here := r.n.o.Set.Get(row)
		switch {
		case here == nil && row.Gone == 0 && r.n.removedAfter(row):
			lost = append(lost, goneOf(row))
		case here == nil:
			newer = append(newer, *row)
		case here.Rev == 0: // of this machine alone
			if _, waits := r.pending[print(row)]; row.Gone != 0 && !waits {
				continue
			}
		case here.Rev == row.Rev && row.Gone == 0:
			mine := live.RowOf(here)
			if mine.Hash() == row.Hash() {
				continue
			}
			lost = append(lost, mine)
		case here.Rev >= row.Rev:
			lost = append(lost, live.RowOf(here))
		default:
			newer = append(newer, *row)
		}
		take = append(take, *row)
	}
	if err := cmp.Or(r.n.lost.settle(newer), r.lose(lost)); err != nil {
		return err
	}
	return r.n.takeRows(take, r.cursor, true)
}

// goneOf is the removal of what a row is about.
func goneOf(row *live.Row) live.Row {
	gone := *row
	gone.Gone = 1
	return gone
}

// missing removes what the engine does not have.
func (r *reading) missing() error {
	var gone []live.Row
	flush := func() error {
		if !r.same || r.known {
			if err := r.lose(gone); err != nil {
				return err
			}
		}
		for i := range gone {
			gone[i].Gone = 1
		}
		err := r.n.takeRows(gone, r.cursor, true)
		gone = gone[:0]
		return err
	}
	for e := range r.n.o.Set.Every() {
		if e.Rev == 0 {
			continue
		}
		row := live.RowOf(e)
		if _, there := r.seen[print(&row)]; there {
			continue
		}
		if gone = append(gone, row); len(gone) == pageRows {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// reconcile compares the sums of engine and Set, and reads everything if they differ.
func (n *Node) reconcile(ctx context.Context) error {
	if err := n.take(ctx); err != nil {
		return err
	}
	defer n.release()
	limited, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	if err := n.o.Engine.Sweep(limited); err != nil {
		return err
	}
	for range 3 { // changes may come between the two
		if err := n.follow(ctx); err != nil {
			return err
		}
		state, err := n.o.Engine.State(limited)
		if err != nil {
			return err
		}
		c := n.o.Set.Cursor()
		if c.Origin != n.origin(state.Epoch) || state.Rev != c.Revision {
			continue
		}
		n.mu.Lock()
		room := n.left.full && n.o.Set.Len() < live.MaxEntries-live.MaxEntries/100
		n.mu.Unlock()
		if !room && n.equal(state) {
			n.mu.Lock()
			n.differs = 0
			n.mu.Unlock()
			return nil
		}
		if !room {
			n.counts.differed.Add(1)
			n.mu.Lock()
			n.differs++
			n.mu.Unlock()
		}
		return n.readAll(ctx, Page{Epoch: state.Epoch, Rev: state.Rev, Now: state.Now})
	}
	return nil
}
