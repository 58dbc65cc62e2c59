package reload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
)

// Recent remembers the senders that were accepted lately, each once: those whom a
// list that is poisoned, or for another purpose, would refuse from now on. All its
// methods may be used from any goroutine; a nil Recent remembers nobody.
//
// It is kept in memory: who makes one fills it, with those of before a restart if
// somebody has kept them. The rule that it serves is silent until recentFrom senders
// have come.
type Recent struct {
	mu      sync.RWMutex
	known   map[string]bool
	ring    []string // canonical addresses, the oldest at next once it is full
	next    int
	maximum int
}

// NewRecent returns a Recent of at most n senders, nil for none. A sender takes
// some 100 octets: 10,000 are a megabyte, and never more than 4 (254 octets of an
// address, twice a table's entry).
func NewRecent(n int) *Recent {
	if n <= 0 {
		return nil
	}
	return &Recent{known: make(map[string]bool), maximum: n}
}

// Add notes an accepted sender. Of one that is known already, nearly all of them,
// it costs a look-up under a shared lock and no allocation. A sender is forgotten
// when as many others have come after it as there is room for.
func (r *Recent) Add(sender addr.Addr) {
	if r == nil || sender.Null() {
		return
	}
	text := sender.String()
	r.mu.RLock()
	known := r.known[text]
	r.mu.RUnlock()
	if known {
		return
	}
	text = strings.Clone(text) // it may be a part of a whole command line
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.known[text]:
		return
	case len(r.ring) < r.maximum:
		r.ring = append(r.ring, text)
	default:
		delete(r.known, r.ring[r.next])
		r.ring[r.next] = text
		r.next = (r.next + 1) % r.maximum
	}
	r.known[text] = true
}

// senders are those remembered now.
func (r *Recent) senders() []string {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.ring)
}

// recentFrom is from how many senders on a share of them says something: at 100
// the usual bound of 1 % is one sender.
const recentFrom = 100

// newly is whom one list would refuse from now on.
type newly struct {
	senders  int
	examples []string
	entries  map[entryAt]int // how many of them each entry refuses
	row      int             // of the first of them
}

type entryAt struct {
	text string
	line int
}

// recent finds the lists of a draft that would newly refuse more of the senders
// who were accepted lately than they may. To refuse somebody who wrote a minute
// ago is what lists are for; to refuse one in a hundred of all is not.
func (r *Reloader) recent(draft *index.Index) (odd []problem) {
	known := r.settings.Recent.senders()
	serving := r.live.Load()
	if serving == nil || r.settings.Blocks == nil || len(known) < recentFrom {
		return nil
	}
	table := draft.Lists()
	found := map[string]*newly{}
	for _, text := range known {
		sender, err := addr.Parse(text)
		if err != nil {
			continue // it was canonical; a later version of the grammar may differ
		}
		m, blocked := r.settings.Blocks(draft, sender)
		if !blocked {
			continue
		}
		if _, before := r.settings.Blocks(serving, sender); before {
			continue
		}
		list := table[m.Row].Source.List
		n := found[list]
		if n == nil {
			n = &newly{entries: map[entryAt]int{}, row: m.Row}
			found[list] = n
		}
		n.add(text, m)
	}
	for _, l := range r.settings.Lists {
		n := found[l.Name]
		if n == nil || float64(n.senders) <= l.MaxRecentBlocked*float64(len(known)) {
			continue
		}
		path := table[n.row].Source.Path
		odd = append(odd, fileProblem(l.Name, path, &lists.FileError{Path: path, Class: lists.Recent,
			Err: fmt.Errorf("would refuse %d of the %d senders accepted lately, more than max_recent_blocked = %v of them: %s; by %s",
				n.senders, len(known), l.MaxRecentBlocked, strings.Join(n.examples, ", "), n.shownEntries())}))
	}
	return odd
}

// shownExamples bounds what of senders and entries is named.
const shownExamples = 3

func (n *newly) add(sender string, m index.Match) {
	n.senders++
	if len(n.examples) < shownExamples {
		n.examples = append(n.examples, sender)
	}
	n.entries[entryAt{strings.Clone(m.Name()), m.Line}]++
}

// shownEntries names the entries that refuse most.
func (n *newly) shownEntries() string {
	all := make([]entryAt, 0, len(n.entries))
	for e := range n.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entryAt) int {
		return cmp.Or(n.entries[b]-n.entries[a], a.line-b.line, strings.Compare(a.text, b.text))
	})
	var b strings.Builder
	for i, e := range all[:min(len(all), shownExamples)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (line %d)", e.text, e.line)
	}
	if more := len(all) - shownExamples; more > 0 {
		fmt.Fprintf(&b, " and %d more entries", more)
	}
	return b.String()
}
