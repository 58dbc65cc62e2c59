package roster

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Remember is for how long a node that does not report any more is told of.
const Remember = 24 * time.Hour

// Gone is a node that has reported, and does not any more.
type Gone struct {
	Node     string    `json:"node" doc:"its name"`
	Seen     time.Time `json:"seen" doc:"when its report was last there, by the clock of the machine that is asked"`
	Version  string    `json:"version" doc:"of blockd, then"`
	Sequence int64     `json:"sequence,omitempty" doc:"that it served then"`
	Address  string    `json:"address,omitempty" doc:"where its HTTP door could be asked by others"`
}

// Past remembers the nodes that have reported, so that one that has stopped is told of. Its methods may be called from several goroutines at once. The zero value
// knows of none.
type Past struct {
	mu sync.Mutex
	of map[string]Gone
}

// Look takes the reports that count now, and returns the nodes that are not among them and were within Remember, by their names. whole says that there
// are no other reports: without that nothing is known to be gone.
func (p *Past) Look(all []Report, whole bool, now time.Time) (gone []Gone) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]Gone{}
	}
	there := make(map[string]bool, len(all))
	for i := range all {
		r := &all[i]
		there[r.Node] = true
		p.of[r.Node] = Gone{Node: r.Node, Seen: now.UTC(), Version: r.Version, Sequence: r.Sequence, Address: r.Address}
	}
	for name, g := range p.of {
		switch {
		case now.Sub(g.Seen) > Remember:
			delete(p.of, name)
		case !there[name]:
			gone = append(gone, g)
		}
	}
	if over := len(p.of) - 2*MostNodes; over > 0 { // somebody makes up names: those that were there last stay
		slices.SortFunc(gone, func(a, b Gone) int { return a.Seen.Compare(b.Seen) })
		over = min(over, len(gone))
		for _, g := range gone[:over] {
			delete(p.of, g.Node)
		}
		gone = gone[over:]
	}
	if !whole {
		return nil
	}
	slices.SortFunc(gone, func(a, b Gone) int { return cmp.Compare(a.Node, b.Node) })
	return gone
}
