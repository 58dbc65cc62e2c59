// Package rollup keeps how many decisions each minute brought, and each hour of a year: by door and outcome, by list and
// outcome, and what allow entries have overruled. It names lists and doors, and nobody who writes or is written to.
//
// It is bounded in octets and in names, and mail never waits for it. A decision adds to a counter in memory; once a minute
// what was counted becomes a line of a file. A crash costs that minute. Minutes that are older than a day become hours.
// What is kept goes by its order and its number, never by its age, so a clock that jumps removes nothing.
package rollup

import (
	"sync"
	"sync/atomic"
	"time"

	"blockd/records/history"
)

// What counts are kept of.
const (
	doors     = 'd' // a door, by outcome
	byList    = 'l' // a list that decided, by outcome; or that would have, as shadow
	overruled = 'o' // a list whose block an allow entry has overruled
	checks    = 'c' // a door that was asked
)

const (
	// None stands for decisions that no list has made, and Others for names without a place of their own.
	None, Others = "(none)", "(others)"

	// shadow is in place of the outcome of what a list would have decided.
	shadow = "shadow"

	// maxNames bounds the names of one kind that a process counts, and that an answer has. maxAliases bounds those
	// that it remembers to have no place.
	maxNames   = 64
	maxAliases = 512
)

// cell is what one number is about.
type cell struct {
	kind       byte
	name, what string // a door or a list; an outcome, or shadow
}

// around is how many minutes counters are about at a time: the current one, and its neighbours, because a decision
// may be counted a moment after its minute has ended, and before the line of the one before is written.
const around = 3

// counter counts one cell since the last line, by minute modulo around.
type counter struct {
	cell
	n [around]atomic.Uint64
}

// Table counts. It is safe for concurrent use. A nil Table counts nothing.
type Table struct {
	path   string
	totals func() []Total // nil: there are none

	cells  atomic.Pointer[map[cell]*counter] // replaced, never changed
	adding sync.Mutex                        // of cells and names
	names  map[byte]map[string]bool

	minute atomic.Int64 // that the counters are about, with the one before and after it

	mu      sync.Mutex // of the fields below
	kept    kept
	last    map[cell]uint64 // of totals
	told    map[cell]uint64 // what another process has told
	loaded  bool
	filling bool

	renumbered bool // the numbers of cells are not those of the file
	unsaved    bool // the file lacks something
}

// Total is a number that another part counts from the start of the process on.
type Total struct {
	Overruled bool   // how often allow entries have overruled the list's blocks; else how often the door was asked
	Name      string // of the list or the door
	N         uint64
}

// New returns a Table whose file is at path. totals are asked once a minute; nil: there are none.
func New(path string, totals func() []Total) *Table {
	t := &Table{path: path, totals: totals, names: map[byte]map[string]bool{}, last: map[cell]uint64{}, told: map[cell]uint64{}}
	t.minute.Store(minuteOf(time.Now()))
	t.cells.Store(&map[cell]*counter{})
	return t
}

func minuteOf(at time.Time) int64 { return at.Unix() / 60 }

// Add counts a decision. It takes no lock and allocates nothing, but for the first one of its kind.
func (t *Table) Add(r *history.Record) {
	if t == nil {
		return
	}
	at, now := minuteOf(r.Time), t.minute.Load()
	if at < now-1 || at > now+1 { // the clock has jumped
		at = now
	}
	cellsOf(r, func(c cell) { t.of(c).n[at%around].Add(1) })
}

// cellsOf calls use for what a decision counts for. What programs were told is no decision about mail.
func cellsOf(r *history.Record, use func(cell)) {
	if r.Outcome == history.Listed {
		return
	}
	use(cell{doors, r.Door, r.Outcome})
	switch {
	case r.List != "" && r.Shadow:
		use(cell{byList, r.List, shadow})
	case r.List != "":
		use(cell{byList, r.List, r.Outcome})
	case r.Outcome != "accept":
		use(cell{byList, None, r.Outcome})
	}
}

// of is the counter of a cell.
func (t *Table) of(c cell) *counter {
	if found := (*t.cells.Load())[c]; found != nil {
		return found
	}
	t.adding.Lock()
	defer t.adding.Unlock()
	all := *t.cells.Load()
	if found := all[c]; found != nil {
		return found
	}
	known, named := c, t.names[c.kind]
	if named == nil {
		named = map[string]bool{}
		t.names[c.kind] = named
	}
	if !named[c.name] && c.name != None && len(named) >= maxNames {
		known.name = Others
	} else if c.name != None {
		named[c.name] = true
	}
	use := all[known]
	if use == nil {
		use = &counter{cell: known}
	} else if len(all) >= maxAliases {
		return use
	}
	more := make(map[cell]*counter, len(all)+2)
	for key, n := range all {
		more[key] = n
	}
	more[c], more[known] = use, use
	t.cells.Store(&more)
	return use
}

// take empties the counters of a minute.
func (t *Table) take(minute int64) map[cell]uint64 {
	all := map[cell]uint64{}
	for _, c := range *t.cells.Load() {
		if n := c.n[minute%around].Swap(0); n > 0 {
			all[c.cell] += n
		}
	}
	return all
}

// counted calls use for what the counters have, without emptying them. minute is the current one.
func (t *Table) counted(minute int64, use func(minute int64, c cell, n uint64)) {
	for key, c := range *t.cells.Load() {
		for at := minute - 1; at <= minute+1 && key == c.cell; at++ {
			if n := c.n[at%around].Load(); n > 0 {
				use(at, c.cell, n)
			}
		}
	}
}
