package shared

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"blockd/index/live"
)

// A node keeps so many changes for nodes that ask it in place of the engine, and so many octets of them.
const (
	mostRecent   = 10_000
	recentOctets = 16 << 20
	answerOctets = 4 << 20 // of the rows of one answer
)

// recent are the last changes that were taken from the engine, in the order of their revisions.
type recent struct {
	epoch string
	from  uint64 // all changes above it are in rows
	rows  []live.Row
	size  int           // of rows, in octets
	grows chan struct{} // closed when there are more; nil: nobody waits
}

// Changes is what a node knows of the engine's changes, for nodes that ask it in place of the engine.
type Changes struct {
	Epoch  string     `json:"epoch" doc:"of the store: another one says that its rows are others"`
	Rev    uint64     `json:"rev" doc:"the highest revision that this node has"`
	Now    time.Time  `json:"now" doc:"by the clock of the store"`
	Rows   []live.Row `json:"rows" doc:"what has changed since, in the order of revisions; tokens have the scope token"`
	More   bool       `json:"more,omitempty" doc:"there are more after these"`
	TooOld bool       `json:"too_old,omitempty" doc:"not all changes since then are known here: ask the store"`
	Count  int64      `json:"count" minimum:"-1" doc:"entries in force with a revision, at rev; -1: ask the store"`
	XOR    [2]uint64  `json:"xor" doc:"of their hashes"`
}

// ErrAsk is the error of a node that does not know what the engine has.
var ErrAsk = errors.New("this node cannot say what has changed")

// note keeps what was taken from a page. The caller has the engine.
func (n *Node) note(p *Page) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &n.recent
	r.epoch = p.Epoch
	if p.To == 0 {
		return
	}
	for i := range p.Rows {
		r.rows, r.size = append(r.rows, p.Rows[i]), r.size+sizeOf(&p.Rows[i])
	}
	if len(r.rows) > mostRecent || r.size > recentOctets { // a tenth at a time
		over := 0
		for over < len(r.rows) && (len(r.rows)-over > mostRecent*9/10 || r.size > recentOctets*9/10) {
			r.from, r.size = r.rows[over].Rev, r.size-sizeOf(&r.rows[over])
			over++
		}
		r.rows = append([]live.Row(nil), r.rows[over:]...)
	}
	r.wake()
}

func sizeOf(r *live.Row) int {
	return 128 + len(r.Owner) + len(r.Entry) + len(r.Scope) + len(r.Action) + len(r.Why) + len(r.By)
}

// noteAll says that everything up to a revision was read, so that no change before it is known.
func (n *Node) noteAll(epoch string, rev uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recent.epoch, n.recent.from, n.recent.rows, n.recent.size = epoch, rev, nil, 0
	n.rev = rev
	n.recent.wake()
}

// wake has those that wait look again. The caller holds mu.
func (r *recent) wake() {
	if r.grows != nil {
		close(r.grows)
		r.grows = nil
	}
}

// Since returns what has changed since a revision. If that is nothing, it waits until ctx ends, and returns no rows then. The
// error wraps ErrAsk, at once if the engine does not answer.
func (n *Node) Since(ctx context.Context, since uint64) (c Changes, err error) {
	for {
		n.mu.Lock()
		if !n.tried || n.fault != nil {
			fault := n.fault
			n.mu.Unlock()
			return c, fmt.Errorf("%w: its store does not answer: %w", ErrAsk, fault)
		}
		r := &n.recent
		if n.rev > since || n.rev < since || r.epoch == "" || ctx.Err() != nil {
			break
		}
		if r.grows == nil {
			r.grows = make(chan struct{})
		}
		grows := r.grows
		n.mu.Unlock()
		select {
		case <-grows:
		case <-ctx.Done():
		}
	}
	r := &n.recent
	c = Changes{Epoch: r.epoch, Rev: n.rev, Rows: []live.Row{}, TooOld: since < r.from}
	size := 0
	for i := range r.rows {
		if r.rows[i].Rev <= since || c.TooOld {
			continue
		}
		if c.More = len(c.Rows) == pageRows || size > answerOctets; c.More {
			break
		}
		size += sizeOf(&r.rows[i])
		c.Rows = append(c.Rows, r.rows[i])
	}
	left := leftOut{many: n.left.many, rows: maps.Clone(n.left.rows)}
	n.mu.Unlock()
	if c.Epoch == "" {
		return c, fmt.Errorf("%w: it has not read everything yet", ErrAsk)
	}
	sum, cursor := n.o.Set.SumAt()
	if c.Now = n.o.Set.Now(); cursor.Revision == c.Rev && !cursor.Reading && !left.many {
		for _, h := range left.rows {
			sum.Count++
			sum.XOR[0] ^= h[0]
			sum.XOR[1] ^= h[1]
		}
		c.Count, c.XOR = sum.Count, sum.XOR
	} else {
		c.Count = -1
	}
	return c, nil
}
