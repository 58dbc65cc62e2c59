// Package reload decides when to look at the list files, when to build, whether a new
// generation may serve, when it is swapped in, and when the old one ends. Its loop is in
// loop.go.
//
// A list change is never felt. The next generation is built aside, must pass the gate, and
// takes over by one atomic pointer. While a source is missing, torn or suddenly empty the
// old generation serves, and a log line, a metric and a line in Status.Problems say so.
package reload

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/index/kept"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/mail/digest"
	"blockd/records/correspondents"
	"blockd/records/history"
)

// List is one [[list]] of the configuration.
type List struct {
	Name       string
	Path       string // a file or a glob
	Named      bool   // each file is one owner's, and named after him
	Settings   lists.Settings
	Mode       index.Mode
	Exceptions index.Exceptions
	Optional   bool
	AllowEmpty bool // a list that had entries may become empty

	// How much a list may shrink or grow from one generation to the next, see Compare.
	// 0: any.
	MaxShrink float64 // of 100 entries or more at least this share stays, 0 to 1
	MaxGrow   float64 // 1,000 entries or more become at most so many times as many

	MaxAge    time.Duration    // of a file that replaces another; 0: any. See Status.Stale
	Confirmed func() time.Time // when the list's server last gave or confirmed the file; nil or zero: ask the file

	// MaxRecentBlocked is the share of the domains in Settings.Recent that one load of the
	// list may newly refuse, 0 to 1; judged from 100 domains on. Beyond it entries are held
	// back.
	MaxRecentBlocked float64

	// MaxFreed is the share of the senders in Settings.Refusals that new exceptions of one load of
	// the list may let in, 0 to 1; judged from 20 of them on. Where the list's exceptions reach no
	// other list, it is the share of the senders that the list itself refused.
	MaxFreed float64

	// Signed says that the files are those of a fleet's sequence: that it has fewer entries is its publisher's will, and
	// that it is there because an operator has said so is what the function reports. nil: they are not.
	Signed func() (chosen bool)

	// Files names the files where something else than the folder says which there are: one of them that is missing is a
	// fault, and what else is in the folder is none of the list. nil, or false: Path says it.
	Files func() (paths []string, ok bool)

	Review bool // a load is a proposal until an operator adopts it
	Own    bool // the process writes it itself of what people add, so nobody takes it back, and none of it is held back for correspondents
}

// Settings of a Reloader.
type Settings struct {
	Path  string // of the index file
	Lists []List
	Quiet time.Duration // no event for so long before a build; 0 = 500 ms
	Poll  time.Duration // the slow look at all files; 0 = 30 s

	Hashes digest.Set // digests by which addresses can be asked for too

	Memory int64 // octets that a build may take for records; 0 = index's default

	// Build builds a draft as index.Build does, wherever it does so; nil = index.Build. urgent: nothing serves yet.
	Build func(ctx context.Context, path string, sources []index.Source, o index.Options, urgent bool) (*index.Draft, error)

	// Parse reads a source for an update in memory, wherever it does so; nil = index.ParseSegment.
	Parse func(ctx context.Context, cache string, s index.Source) error

	// Recent has the senders accepted lately. Blocks returns the entries of an index that
	// refuse a sender from a client; each of them does so without the others. With one of
	// both nil a draft is not compared with past mail.
	Recent *Recent
	Blocks func(*index.Index, addr.Addr, netip.Addr) []index.Match

	// Correspondents are whom users of this server write to: an entry that would refuse one of them is held back. nil = none
	// are known. It needs Blocks.
	Correspondents *correspondents.Set

	// Refusals reads the refusals of the last days, and Judge says what an index makes of
	// one. With one of both nil a draft may let anything pass.
	Refusals func(context.Context) (Past, error)
	Judge    Judge

	// PastMail calls each for the mail since a time, the newest first, until it returns false. It is what a proposal is
	// tried on, with Judge. mail is valid during the call only. nil: no mail of the past is known.
	PastMail func(ctx context.Context, since time.Time, each func(at time.Time, mail *history.Refusal) bool) error

	// Renew writes the lists that this process makes itself, and reports whether it has
	// written any. It is called before a build or an update that is due for another reason.
	// Served is called with each generation that has begun to serve. Both may be nil.
	Renew  func(context.Context) bool
	Served func(*index.Index)

	// Kept has what each list held before, and which lists do not follow their files. nil: nothing is kept.
	Kept *kept.Store

	// Refused is called with each refusal of a list, when it appears; nil: nobody is told.
	Refused func(Refusal)

	updateFrom uint64 // keys from which on a small change serves from memory first; 0 = defaultUpdateFrom
}

// The defaults of Settings. Editors and copy programs write a file in bursts of a few
// milliseconds; half a second of quiet joins them and is still "at once" for a person. The
// poll finds what no event tells of, such as changes in network file systems.
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
	replaced chan struct{} // of Replaced
	live     atomic.Pointer[index.Index]

	following atomic.Bool // see Follow

	mu      sync.Mutex // guards what follows, which only Open and Run write
	status  Status
	bytes   int64 // of the serving index file
	past    struct{ falsePositives, asked uint64 }
	waiting []chan bool // of Look, for the next forced look

	// What follows belongs to the goroutine in Open, then to that in Run.
	askers     []chan bool             // of Look, whose look is under way
	dropped    map[file]*lists.Dropped // refused lines of the files in service, as they were logged
	former     *index.Index            // of another configuration, while there is nothing else to compare with
	lacks      lacking
	files      fileCache
	putOff     int       // looks for which proposals have waited for other lists
	decidedOn  []content // what led to the last outcome; nil: look again
	problems   []problem
	young      []problem                                      // of the last look, where a file without entries is so young that it does not count yet
	unfinished int                                            // looks in a row that met a file being written
	yielded    int                                            // builds in a row that gave way to a change
	torn       int                                            // updates in a row that were of two moments
	updated    time.Time                                      // the last small change that serves from memory
	owed       time.Time                                      // the first one since the last build
	refusals   func() Past                                    // of the load in hand
	promoted   string                                         // generation whose filter was brought into memory, or could not be
	seen       view                                           // by the last look
	dates      map[file]time.Time                             // of what serves, see age
	held       heldEntries                                    // of what serves
	heldKept   heldEntries                                    // as their file has them
	noted      [2]os.FileInfo                                 // stamps when the note of acceptance was last read
	accepted   func(list string, table []index.ListInfo) bool // an operator has accepted the list as the table has it; nil: none
	refused    map[string]error                               // lists that the gate of another process refuses
	urged      bool                                           // to build although no content is new: entries that were held back may be accepted
	followed   os.FileInfo                                    // of the index file that follow has last looked at
	failures   int                                            // looks in a row that ended with failed
	failedAt   time.Time                                      // the last of them
	failedOn   []content                                      // what it could not build

	pins      map[string]kept.Pin // of lists that do not follow their files
	pinsStamp os.FileInfo         // of their file when it was last read
	acts      map[string]string   // lists that an operator has taken back, or let in, since the last swap: how
	faulty    map[string]string   // why the files of a pinned list cannot be proposed
	tidies    chan struct{}
}

// Status is what /readyz and the console show.
type Status struct {
	Ready       bool // at least one of the lists that are not optional filters
	Lists       int  // lists that are not optional
	Filtering   int  // those of them of which something serves
	Generation  string
	Since       time.Time // of the swap
	LastAttempt time.Time // of the last look at all files, whatever its outcome
	Problems    []string  // one line each: why the last reload did not serve; empty = all is well
	Remarks     []string  // one line each: what operators should know although everything serves
	Stale       []string  // names of the lists in force that are older than their MaxAge
	Refusals    []Refusal // the Problems of lists
	Files       []index.ListInfo
	Worth       []index.ListWorth // of the lists of Files, and what they have in common
	Overlaps    []index.Overlap

	// Dates says, by list and path, when the content that serves was last known to be the
	// list: when its server confirmed it, or else when the file was written.
	Dates map[[2]string]time.Time

	// Held is the number of entries that are held back, by list; lists without any are
	// missing. They would refuse senders accepted lately, or correspondents.
	Held map[string]int

	// Pins are the lists that do not follow their files, by their names. Do not change them.
	Pins []kept.Pin

	Looked time.Time // when the last look began that has come to an end: what came in force before that was judged

	pinsFault string // why they cannot be read now
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

	Command string // that lets the list in all the same; "" where it is to be put right first
}

// Told are the problems, each with the command that lets its list in all the same.
func (s Status) Told() []string {
	lines := slices.Clone(s.Problems)
	for i, text := range lines {
		if k := slices.IndexFunc(s.Refusals, func(r Refusal) bool { return r.Text == text }); k >= 0 {
			lines[i] = told(text, s.Refusals[k].Command)
		}
	}
	return lines
}

// Open makes the first generation serve: the index at Settings.Path if it was built from
// these lists as they are now, else a fresh build. If a list is refused, the index on disk
// serves if it is a good generation of these lists, else a build without the refused lists.
//
// An index of another configuration does not serve, but the lists that it has are compared
// with it as at any reload.
//
// The error says why nothing can serve: the index can be neither read nor written. A bad list
// is no error but a problem.
func Open(ctx context.Context, s Settings, log *slog.Logger, reg prometheus.Registerer) (*Reloader, error) {
	s.Quiet = cmp.Or(max(s.Quiet, 0), defaultQuiet)
	s.Poll = cmp.Or(max(s.Poll, 0), defaultPoll)
	s.updateFrom = cmp.Or(s.updateFrom, defaultUpdateFrom)
	s.Build = s.build()
	r := &Reloader{settings: s, log: log, metrics: newMetrics(reg), asked: make(chan struct{}, 1), replaced: make(chan struct{}, 1), tidies: make(chan struct{}, 1), acts: map[string]string{}}
	var err error
	if r.files.kept, err = readStamps(s.Path); err != nil {
		r.log.Warn("all lists are read", slog.String("file", s.Path+stampsSuffix), slog.Any("error", err))
	}
	r.files.fresh = true
	r.held = r.openHeld()
	r.heldKept = r.held
	g := r.onDisk()
	r.openPins(g)
	switch {
	case g == nil:
	case g.holds(s.Lists, r.pins):
		// What follows is an ordinary reload.
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

func (s Settings) build() func(context.Context, string, []index.Source, index.Options, bool) (*index.Draft, error) {
	if s.Build != nil {
		return s.Build
	}
	return func(ctx context.Context, path string, sources []index.Source, o index.Options, _ bool) (*index.Draft, error) {
		return index.Build(ctx, path, sources, o)
	}
}

// Live returns the serving generation, never nil. Call it once a transaction.
func (r *Reloader) Live() *index.Index { return r.live.Load() }

// Now asks Run to look at once, without the quiet time, and to read all files anew, even
// those that seem unchanged. It does not wait for that.
func (r *Reloader) Now() {
	select {
	case r.asked <- struct{}{}:
	default: // Run is asked already
	}
}

// Look is Now that waits until Run has looked, and reports whether the lists that serve are others than before: what
// the look logs, but "nothing changed", which is the caller's to say. The error is that of ctx.
func (r *Reloader) Look(ctx context.Context) (swapped bool, err error) {
	done := make(chan bool, 1)
	r.mu.Lock()
	r.waiting = append(r.waiting, done)
	r.mu.Unlock()
	r.Now()
	select {
	case swapped = <-done:
		return swapped, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Replaced tells Run that files of a list were replaced, each as a whole: it looks at once, without the quiet time, and
// reads what has changed. It does not wait for that.
func (r *Reloader) Replaced() {
	select {
	case r.replaced <- struct{}{}:
	default: // Run is told already
	}
}

// Status returns the state as it is now. Do not change what it returns.
func (r *Reloader) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Remarks = slices.Concat(PinRemarks(s.Pins), s.Remarks, fileRemarks(s.Files, s.Dates, time.Now()))
	if s.pinsFault != "" {
		s.Problems = append([]string{s.pinsFault}, s.Problems...)
	}
	return s
}

// Run watches the lists until ctx ends, and then returns nil. Call it once. Where the system
// has no file events it logs that, and relies on the poll.
func (r *Reloader) Run(ctx context.Context) error {
	w := newWatch(r.log)
	defer w.close()
	if r.settings.Kept != nil {
		var keeping sync.WaitGroup
		keeping.Go(func() { r.keepTidy(ctx) })
		defer keeping.Wait()
	}
	r.run(ctx, w.changed, func() { w.follow(r.settings.Lists) })
	return nil
}

// run is Run with any source of events. follow makes them come from where the lists are now.
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
			if r.following.Load() || r.pinsMoved() {
				return true // the index file may be another one
			}
			return r.moved() || r.files.unsure || len(r.problems) > 0 || len(r.held) > 0 && r.noteMoved()
		},
		look: func(forced bool) state {
			next, _ := r.look(ctx, forced)
			r.promote(ctx)
			follow()
			return next
		},
	}
	l.run(ctx, events, r.replaced, r.asked)
}

// mostRests bounds how much longer the rests become: to four minutes, with polls each 30 s.
const mostRests = 3

// rests reports whether a build that has failed is not to be tried again yet. A file that changes ends that. A build of a
// large list that the kernel kills each time would else take a processor for good.
func (r *Reloader) rests(now time.Time) bool {
	return r.failures > 0 && now.Sub(r.failedAt) < r.settings.Poll<<min(r.failures-1, mostRests)
}

// moved reports whether a file has another stamp than when it was last looked at.
func (r *Reloader) moved() bool {
	sources, _ := expand(r.settings.Lists)
	return r.files.moved(sources)
}
