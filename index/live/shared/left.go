package shared

import (
	"errors"
	"fmt"
	"log/slog"

	"blockd/index/live"
)

// leftOut is what of the engine's rows does not act on this machine.
type leftOut struct {
	rows   map[[16]byte][2]uint64 // the hashes of rows that cannot be read, or have no room: the sums leave them out
	many   bool                   // there are more than mostLeft: nothing can be compared any more
	full   bool                   // some had no room
	bad    int                    // what stands between the rows and is none
	first  string                 // of bad
	tokens map[string]string      // tokens that are none, by their names, and why
}

const (
	mostLeft    = 100_000
	mostLeftOut = 100 // tokens that are remembered
)

// noteLeft remembers which rows the Set has left out.
func (n *Node) noteLeft(rows []live.Row, left []live.Left) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &n.left
	if len(l.rows) > 0 {
		for i := range rows {
			delete(l.rows, print(&rows[i]))
		}
	}
	for i, one := range left {
		n.counts.unread.Add(1)
		if i < 3 {
			n.o.Log.Warn("a live entry of the fleet is left out, and does not act here", slog.Any("error", one.Err))
		}
		row := &rows[one.Row]
		if row.Gone != 0 {
			continue
		}
		l.full = l.full || errors.Is(one.Err, live.ErrFull)
		if len(l.rows) >= mostLeft {
			l.many = true
			continue
		}
		if l.rows == nil {
			l.rows = map[[16]byte][2]uint64{}
		}
		l.rows[print(row)] = row.Hash()
	}
}

// noteBad remembers that something is no row.
func (n *Node) noteBad(bad []string) {
	if len(bad) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts.unread.Add(uint64(len(bad)))
	if n.left.bad == 0 {
		n.left.first = bad[0]
	}
	n.left.bad += len(bad)
	for _, name := range bad[:min(3, len(bad))] {
		n.o.Log.Warn("something in the store of shared live entries is no entry, and does not act", slog.String("which", name))
	}
}

// noteToken remembers that a token is none, or, with why == nil, that it is one.
func (n *Node) noteToken(name string, why error) {
	if len(name) > 100 {
		name = name[:100] + "..."
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if why == nil {
		delete(n.left.tokens, name)
		return
	}
	n.counts.unread.Add(1)
	if len(n.left.tokens) < mostLeftOut {
		if n.left.tokens == nil {
			n.left.tokens = map[string]string{}
		}
		n.left.tokens[name] = why.Error()
	}
	n.o.Log.Warn("a token of the fleet is not valid here", slog.String("token", name), slog.Any("error", why))
}

// problems are what is left out, for people. The caller holds mu.
func (l *leftOut) problems() (all []string) {
	more := ""
	if l.many {
		more = "more than "
	}
	if len(l.rows) > 0 {
		what := "cannot be read by this program"
		if l.full {
			what = fmt.Sprintf("cannot be read or have no room, as %d entries are the most", live.MaxEntries)
		}
		all = append(all, fmt.Sprintf("live.shared: %s%d rows of the store %s, and do not act here; the log names them", more, len(l.rows), what))
	}
	if l.bad > 0 {
		all = append(all, fmt.Sprintf("live.shared: the store has %d fields that are no entries, and do not act; the first one is %s", l.bad, l.first))
	}
	for name, why := range l.tokens {
		all = append(all, fmt.Sprintf("live.shared: %d tokens of the fleet are not valid here; one of them is %q: %s", len(l.tokens), name, why))
		break
	}
	return all
}

// equal compares what an engine says of itself with the Set.
func (n *Node) equal(s State) bool {
	sum := n.o.Set.Sum()
	n.mu.Lock()
	many := n.left.many
	for _, h := range n.left.rows {
		sum.Count++
		sum.XOR[0] ^= h[0]
		sum.XOR[1] ^= h[1]
	}
	n.mu.Unlock()
	if many || sum.Count == s.Count && (s.XOR == nil || *s.XOR == sum.XOR) {
		return true
	}
	n.o.Log.Warn("shared live entries differ from the store's", slog.Int64("here", sum.Count), slog.Int64("store", s.Count), slog.String("sum", fmt.Sprintf("%016x%016x", sum.XOR[0], sum.XOR[1])))
	return false
}
