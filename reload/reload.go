// Package reload owns time: when to look at the list files, when to build,
// whether a new generation may serve, the swap, and the old one's end.
//
// A list change is never felt. The next generation is built aside, must pass the
// gate, and takes over by one atomic pointer. A source that is missing, torn or
// suddenly empty leaves the old generation serving, loudly: a log line, a metric
// and a line in Status.Problems, until it is cured.
package reload

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
)

// List is one [[list]] of the configuration.
type List struct {
	Name       string
	Path       string // a file or a glob
	Settings   lists.Settings
	Mode       index.Mode
	Exceptions index.Exceptions
	Optional   bool
	AllowEmpty bool // a list that had entries may become empty

	// By what share of its entries a list may shrink or grow from one generation
	// to the next: see Compare. Zero: by any.
	MaxShrink float64 // of 100 entries or more at least this share stays, 0 to 1
	MaxGrow   float64 // 1,000 entries or more become at most so many times as many

	MaxAge    time.Duration    // of a file that replaces another; 0: any. See Status.Stale
	Confirmed func() time.Time // when the list's server last gave or confirmed the file; nil or zero: ask the file

	// MaxRecentBlocked is which share of those who wrote lately the list may newly refuse
	// in one load, 0 to 1; judged from 100 domains on. Beyond it entries are held back.
	MaxRecentBlocked float64

	// MaxFreed is which share of Settings.Refusals one load of the list may lift, 0 to 1;
	// judged from 20 of them on. Where the exceptions of the list stay home, of its own.
	MaxFreed float64
}

// Settings of a Reloader.
type Settings struct {
	Path  string // of the index file
	Lists []List
	Quiet time.Duration // no event for so long before a build; 0 = 500 ms
	Poll  time.Duration // the slow look at all files; 0 = 30 s

	Memory int64 // octets that a build may take for records; 0 = index's default

	// Recent has those who wrote lately, and Blocks says which entries of an index refuse
	// a sender that comes from a client; each of them would do so without the others. One
	// of both nil: a draft is not held against anybody.
	Recent *Recent
	Blocks func(*index.Index, addr.Addr, netip.Addr) []index.Match

	// Refusals reads those of the last days, and Judge says what an index makes of one.
	// One of them nil: it does not matter what a draft lets pass.
	Refusals func(context.Context) (Past, error)
	Judge    Judge

	// Renew writes anew what lists this process makes itself; it is called before a
	// build or an update that is due for another reason, and reports whether it has
	// written any. Served is told of each generation that has begun to serve. Both may
	// be nil.
	Renew  func(context.Context) bool
	Served func(*index.Index)

	updateFrom uint64 // keys from which on a small change is served from memory first; 0 = defaultUpdateFrom
}

// The defaults of Settings. Editors and copy programs write a file in bursts of
// a few milliseconds; half a second of quiet joins them and is still "at once"
// for a person. The poll is for what no event tells: network file systems.
const (
	defaultQuiet = 500 * time.Millisecond
	defaultPoll  = 30 * time.Second
)

// Reloader holds the serving generation and makes the next one. Live, Now,
// Status and the metrics may be used at any time from any goroutine.
type Reloader struct {
	settings Settings
	log      *slog.Logger
	metrics  *metrics
	asked    chan struct{} // of Now
	live     atomic.Pointer[index.Index]

	mu     sync.Mutex // guards what follows, which only Open and Run write
	status Status
	bytes  int64 // of the serving index file
	past   struct{ falsePositives, asked uint64 }

	// What follows belongs to the goroutine in Open, then to that in Run.
	dropped    map[[2]string]*lists.Dropped // lines refused of the files in service, as they were told of
	former     *index.Index                 // of another configuration, while there is nothing else to compare with
	lacks      lacking
	files      fileCache
	decidedOn  []content // what led to the last outcome; nil: look again
	problems   []problem
	unfinished int                     // looks in a row that met a file being written
	yielded    int                     // builds in a row that gave way to a change
	refusals   func() Past             // of the load in hand
	promoted   string                  // generation whose filter was brought into memory, or could not be
	seen       view                    // by the last look
	dates      map[[2]string]time.Time // by list and path: of what serves, see age
	held       heldEntries             // of what serves
	heldKept   heldEntries             // as their file has them
	noted      [2]os.FileInfo          // see noteMoved
}

// Status is what /readyz and the console say.
type Status struct {
	Ready       bool // mail can be decided about: of the lists that must be there, one filters at least
	Lists       int  // lists that are not optional
	Filtering   int  // of them: those of which something serves
	Generation  string
	Since       time.Time // of the swap
	LastAttempt time.Time // of a look at all files, whatever came of it
	Problems    []string  // one line each: why the last reload did not serve; empty = all is well
	Remarks     []string  // one line each: what an operator should know although everything serves
	Stale       []string  // names of the lists in force that are older than their MaxAge
	Refusals    []Refusal // those of Problems that a list has
	Files       []index.ListInfo
	Worth       []index.ListWorth // of the lists of Files, and what they have in common
	Overlaps    []index.Overlap

	// Dates says when what serves was last known to be the list, by list and path:
	// when its server confirmed it, or else when the file was written.
	Dates map[[2]string]time.Time

	// Held is how many entries of a list are held back: who wrote lately speaks against
	// them. Lists without any are missing.
	Held map[string]int
}

// Lacks says how many lists filter where it is not all of them: "13 of 14 lists
// filter"; else "".
func (s Status) Lacks() string {
	if s.Filtering == s.Lists {
		return ""
	}
	return fmt.Sprintf("%d of %d lists filter", s.Filtering, s.Lists)
}

// Refusal is why a list as it is now does not serve.
type Refusal struct {
	List  string
	File  string      // or the pattern that the list has for a path
	Class lists.Class // "" where the fault is the system's
	Text  string      // as Status.Problems has it
}

// Open makes the first generation serve: the index at Settings.Path if it was
// built from these lists as they are now, else a fresh build; if a list is
// refused and the index on disk holds a good generation of these lists, that one;
// else a build without the refused lists (and Ready is false, if that is all that must be there).
//
// An index of another configuration does not serve, but the lists that it has are
// held against it as at any reload.
//
// The error says why there is nothing to serve: an index that can be neither
// read nor written. A bad list is no error but a problem.
func Open(ctx context.Context, s Settings, log *slog.Logger, reg prometheus.Registerer) (*Reloader, error) {
	if s.Quiet <= 0 {
		s.Quiet = defaultQuiet
	}
	if s.Poll <= 0 {
		s.Poll = defaultPoll
	}
	if s.updateFrom == 0 {
		s.updateFrom = defaultUpdateFrom
	}
	r := &Reloader{settings: s, log: log, metrics: newMetrics(reg), asked: make(chan struct{}, 1)}
	r.held = r.openHeld()
	r.heldKept = r.held
	switch g := r.onDisk(); {
	case g == nil:
	case g.holds(s.Lists):
		// From here on it is an ordinary reload: nothing to do if the lists are
		// as they were, and if one is refused the old generation stays.
		r.serve(g, found)
	default:
		r.former = g.ix
	}
	if _, err := r.look(ctx, false); r.live.Load() == nil {
		return nil, err
	}
	if reg != nil {
		reg.MustRegister(collector{r})
	}
	return r, nil
}

// Live returns the serving generation, never nil. Load it once a transaction.
func (r *Reloader) Live() *index.Index { return r.live.Load() }

// Now asks Run for a reload at once, without the quiet time (SIGHUP): all files
// are read anew, also those that look unchanged. It does not wait.
func (r *Reloader) Now() {
	select {
	case r.asked <- struct{}{}:
	default: // one is asked for already
	}
}

// Status may be called at any time. Do not change what it returns.
func (r *Reloader) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run watches until ctx ends, and returns nil then. Call it once. Where the
// system gives no events it says so and goes by the poll alone.
func (r *Reloader) Run(ctx context.Context) error {
	w := newWatch(r.log)
	defer w.close()
	r.run(ctx, w.changed, func() { w.follow(r.settings.Lists) })
	return nil
}

// run is Run with any source of events. follow sees to it that they come from
// where the lists are now.
func (r *Reloader) run(ctx context.Context, events <-chan struct{}, follow func()) {
	follow()
	r.promote(ctx)
	l := loop{
		quiet: r.settings.Quiet,
		poll:  r.settings.Poll,
		moved: r.moved,
		due: func() bool {
			follow()
			r.age(time.Now())
			return r.moved() || r.files.unsure || len(r.problems) > 0 || r.noteMoved()
		},
		look: func(forced bool) state {
			next, _ := r.look(ctx, forced)
			r.promote(ctx)
			follow()
			return next
		},
	}
	l.run(ctx, events, r.asked)
}

// moved reports whether a file is another one than when it was last looked at,
// by what the system says of it.
func (r *Reloader) moved() bool {
	sources, _ := expand(r.settings.Lists)
	return r.files.moved(sources)
}
