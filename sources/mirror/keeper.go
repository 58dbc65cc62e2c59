package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// List is a list whose source a Keeper follows.
type List struct {
	Name string
	// Open makes the driver. It makes no connection. It is called again after an error of ClassAuth, so that a new
	// secret counts.
	Open      func() (Source, error)
	Copy      Options
	Every     time.Duration // how often changes are asked for
	Reconcile time.Duration // how often everything is read again

	// Whole says that the source cannot tell its changes, and that reading all of it is dear to it: from manyRows rows
	// on it is not read more often than each manyEvery.
	Whole bool
}

// A source with List.Whole: a set of ten million in a Redis takes a minute to read.
const (
	manyRows  = 1_000_000
	manyEvery = 10 * time.Minute
)

// How long a source is waited for. One that is back is read again within 10 s: the longest pause and the answer to the
// first question are below that together.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 4 * time.Second

	greeting = 5 * time.Second  // for its fingerprint, the first question of a read
	silence  = 30 * time.Second // without a row, while changes are read
	sorting  = 5 * time.Minute  // without a row of a full read: a database may sort all of them before the first
	grace    = 2 * time.Second  // after which a call that does not end with its context is left alone
)

// mostBatch is how long a hint waits at most, if the last poll took long.
const mostBatch = 250 * time.Millisecond

// UnloggedShare is how many times as long as a full read an Unlogged source is left alone before the next one.
const UnloggedShare = 9

// clockSlack is how far in the future the last full read may lie: a clock is set right by little. If it is more, a
// wrong clock wrote that time, and the next full read might not come for years.
const clockSlack = time.Minute

// troubles is how often the log says at most that a source is not followed.
const troubles = 10 * time.Minute

// Keeper keeps the copies of lists up to date, each in a goroutine of its own. All methods may be used at any time from
// any goroutine, Run once. A nil Keeper has no lists.
type Keeper struct {
	followers []*follower
	turn      chan struct{} // Options.turn of all copies
}

// NewKeeper returns a Keeper of lists. It opens no file and no connection. changed is called, from any goroutine, when
// the files of a copy have changed; it must not wait.
func NewKeeper(lists []List, changed func(), log *slog.Logger, reg prometheus.Registerer) *Keeper {
	k, now := &Keeper{turn: make(chan struct{}, 1)}, time.Now()
	for _, l := range lists {
		l.Copy.turn = k.turn
		k.followers = append(k.followers, &follower{
			List: l, changed: changed, log: log.With(slog.String("list", l.Name)), asked: make(chan struct{}, 1),
			status: Status{State: Away, Since: now}, errors: map[Class]int{},
		})
	}
	if reg != nil && len(lists) > 0 {
		reg.MustRegister(collector{k})
	}
	return k
}

// Run follows all sources until ctx ends, and then returns nil. A driver that does not end with ctx is not waited for.
func (k *Keeper) Run(ctx context.Context) error {
	if k == nil {
		return nil
	}
	var all sync.WaitGroup
	for _, f := range k.followers {
		all.Go(func() { f.run(ctx) })
	}
	all.Wait()
	return nil
}

// Now asks Run to read every source whole at once. It does not wait.
func (k *Keeper) Now() {
	if k == nil {
		return
	}
	for _, f := range k.followers {
		select {
		case f.asked <- struct{}{}:
		default: // it is asked for already
		}
	}
}

// ReadMissing reads the source of a list of which there is no copy yet, for a program that compiles without a daemon.
// A copy that is there is left to the daemon.
func ReadMissing(ctx context.Context, l List) error {
	if _, err := os.Lstat(filepath.Join(l.Copy.Folder, currentName)); err == nil {
		return nil
	}
	source, err := l.Open()
	if err != nil {
		return ofOrigin(err)
	}
	w := &watched{source: source}
	defer w.close()
	m, err := Open(l.Copy)
	if err != nil {
		return ofDisk(err)
	}
	defer m.Close()
	_, err = m.Read(ctx, w)
	return err
}

// Status is that of a list's source; false if the Keeper does not follow it.
func (k *Keeper) Status(list string) (Status, bool) {
	if k == nil {
		return Status{}, false
	}
	for _, f := range k.followers {
		if f.Name == list {
			return f.now(), true
		}
	}
	return Status{}, false
}

// SourceState is how a source is.
type SourceState string

// The states.
const (
	OK      = SourceState("ok")      // the copy is what the source holds, as of Status.Confirmed
	Away    = SourceState("away")    // the source cannot be read; the copy serves on
	Refused = SourceState("refused") // what the source holds is not taken; the copy serves on
)

// Status is how a source is, and how far its copy is behind.
type Status struct {
	State     SourceState
	Class     Class     // why it is not ok, which may be a full read that fails while changes are followed; "" if it is, and before the first answer
	Since     time.Time // of State
	Confirmed time.Time // when the source was last asked with success: the copy has all that it held then; zero = never
	Changed   time.Time // when the files of the copy last changed; zero = not since the start
	Rows      int64     // entries of the copy
	Missed    int64     // entries of which only a full read told that they had changed
	Error     string    // one line; "" if the state is OK
}

// Lag is how far the copy may be behind its source; 0 if the source was never read.
func (s Status) Lag(now time.Time) time.Duration {
	if s.Confirmed.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Confirmed))
}

// Fail makes the status that of a source whose read has ended with an error, and returns its class and text.
func (s *Status) Fail(err error) (Class, string) {
	class := ClassQuery
	if e, ok := errors.AsType[*Error](err); ok {
		class, err = e.Class, e.Err
	}
	state := Away
	if class == ClassRows || class == ClassEncoding {
		state = Refused
	}
	if s.State != state || s.Class == "" {
		s.State, s.Since = state, time.Now()
	}
	s.Class, s.Error = class, oneLine(err.Error())
	return s.Class, s.Error
}

// follower follows one source.
type follower struct {
	List
	changed func()
	log     *slog.Logger
	asked   chan struct{} // of Keeper.Now

	mu     sync.Mutex // guards what follows
	status Status
	errors map[Class]int

	// What follows belongs to the goroutine of run.
	mirror   *Mirror
	source   *watched
	lastRead time.Time // when the last full read ended
	owed     bool      // a full read is
	unread   unread
	useless  error         // that no row of the last full read was an entry; nil = some were, or there was none
	unlogged *Unlogged     // why the source is read whole each time; nil = it tells its changes, or has no way to
	lastTook time.Duration // of that: if the source cannot tell its changes, it is read half of the time at most
	told     time.Time     // when the log last said that something is wrong; zero = all is well
	dropped  time.Time     // when the log last said that rows were refused
}

func (f *follower) now() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// run follows the source until ctx ends.
func (f *follower) run(ctx context.Context) {
	defer f.close()
	whole := false
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := f.attempt(ctx, whole)
		took := time.Since(began)
		switch {
		case ctx.Err() != nil: // the end of the daemon is no fault of a source
		case err != nil:
			failures++
			f.failed(err)
			whole = f.pause(ctx, Retry(failures))
		default:
			failures = 0
			f.confirmed(began)
			whole = f.rest(ctx, took)
		}
	}
}

// Retry is how long a source is left alone after this many failures in a row.
func Retry(failures int) time.Duration { return retry(failures, rand.Float64()) }

// retry is Retry, with a number between 0 and 1.
func retry(failures int, random float64) time.Duration {
	most := longestPause
	if shift := min(failures-1, 8); firstPause<<shift < most {
		most = firstPause << shift
	}
	return time.Duration(float64(most) * (0.75 + 0.25*random))
}

// attempt brings the copy up to date, by what has changed if that will do.
func (f *follower) attempt(ctx context.Context, whole bool) error {
	if err := f.open(); err != nil {
		return err
	}
	state, has := f.mirror.State()
	age := time.Since(state.Read)
	f.owed = f.owed || whole || age >= f.Reconcile || age <= -clockSlack
	due := f.owed
	if f.unread.err != nil && !whole { // what could not be read whole is followed until the next try
		due = !time.Now().Before(f.unread.next)
	}
	if has && !due {
		told, err := f.mirror.Follow(ctx, f.source)
		if !errors.Is(err, ErrTooOld) {
			if err == nil {
				f.unlogged = nil
				f.owed = f.owed || f.useless != nil && told.Rows > 0
			}
			return f.took(told, err)
		}
		rest := f.lastTook
		if f.unlogged, _ = errors.AsType[*Unlogged](err); f.unlogged != nil {
			rest *= UnloggedShare
		} else if why, told := strings.CutPrefix(err.Error(), ErrTooOld.Error()+": "); told { // a source without changes says no more
			f.log.Warn("source is read anew as a whole", slog.String("reason", why))
		}
		has = false // what is found to differ was not missed: the source could not tell
		f.pause(ctx, rest-time.Since(f.lastRead))
	}
	began := time.Now()
	defer func() { f.lastRead, f.lastTook = time.Now(), time.Since(began) }()
	read := f.mirror.Read
	if has {
		read = f.mirror.Reconcile
	}
	told, err := read(ctx, f.source)
	f.unread.note(err)
	f.owed = err != nil
	if err == nil {
		f.useless = told.useless()
		f.log.Info("list read from its source", slog.Int64("rows", told.Rows), slog.Int64("entries", told.Entries), slog.Bool("changed", told.Changed),
			slog.Float64("seconds", time.Since(began).Seconds()))
	}
	return f.took(told, err)
}

// unread is why the last full read has failed, of a source that was there. Its changes are followed nevertheless, if
// it can tell them: a table with more rows than are allowed, say, is no reason to pass over an entry that was added.
type unread struct {
	err   error // nil = it has not failed
	tries int   // that have failed in a row
	next  time.Time
}

// longestUnread is the longest time between two tries of a full read whose source can be followed. The first comes
// after a second.
const longestUnread = 4 * time.Minute

// note notes what a full read has come to.
func (u *unread) note(err error) {
	if err == nil {
		*u = unread{}
		return
	}
	if e, ok := errors.AsType[*Error](err); ok && (e.Class == ClassUnreachable || e.Class == ClassAuth) {
		return // changes cannot be asked for either
	}
	wait := longestUnread
	if u.tries < 10 {
		wait = min(wait, time.Second<<u.tries)
	}
	*u = unread{err, u.tries + 1, time.Now().Add(wait)}
}

// open opens what is not open.
func (f *follower) open() (err error) {
	if f.mirror == nil {
		if f.mirror, err = Open(f.Copy); err != nil {
			return ofDisk(err)
		}
		f.mu.Lock()
		state, _ := f.mirror.State()
		f.status.Rows, f.status.Confirmed = state.Entries(), f.mirror.Confirmed()
		f.mu.Unlock()
		f.changed() // of what a crash had left in the journal
	}
	if f.source == nil {
		source, err := f.Open()
		if err != nil {
			return ofOrigin(err)
		}
		f.source = &watched{source: source}
	}
	return nil
}

// took makes known what a read has come to.
func (f *follower) took(told *Report, err error) error {
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.status.Rows = told.Entries
	f.status.Missed += told.Missed
	if told.Changed {
		f.status.Changed = time.Now()
	}
	f.mu.Unlock()
	if told.Changed {
		f.changed()
	}
	if told.Missed > 0 {
		f.log.Warn("a full read has found what the changes did not tell", slog.Int64("entries", told.Missed),
			slog.String("hint", `rows that were deleted, or written late; changes = "log" misses none`))
	}
	if told.Refused > 0 && (f.dropped.IsZero() || time.Since(f.dropped) >= troubles) {
		f.dropped = time.Now()
		f.log.Warn("rows of the source are no entries", slog.Int64("rows", told.Refused), slog.String("id", told.First[0].ID),
			slog.String("class", string(told.First[0].Class)), slog.String("error", oneLine(told.First[0].Message)))
	}
	if f.tooDear() {
		return &Error{ClassRows, fmt.Errorf("%d rows are read whole each %s: from %d on want every = %q or more", told.Rows, f.Every, manyRows, "10m")}
	}
	return nil
}

// tooDear reports whether the source is larger than one that may be read so often.
func (f *follower) tooDear() bool { return f.Whole && f.Every < manyEvery && f.now().Rows > manyRows }

// rest waits until the source is to be asked again, at the latest after Every, and reports whether it is to be read
// whole. A hint ends the rest, but no sooner than the last poll took: changes that come all the time come in batches.
func (f *follower) rest(ctx context.Context, took time.Duration) (whole bool) {
	began := time.Now()
	hint, cancel := context.WithTimeout(ctx, f.Every)
	defer cancel()
	told := make(chan error, 1)
	go func() { told <- f.source.Wait(hint) }()
	select {
	case <-f.asked:
		cancel()
		<-told
		return true
	case err := <-told:
		least := min(took, mostBatch)
		if err != nil && hint.Err() == nil {
			least = f.Every // no more hints: the poll finds it
		}
		return f.pause(ctx, least-time.Since(began))
	}
}

// pause waits, and reports whether the source is to be read whole.
func (f *follower) pause(ctx context.Context, d time.Duration) (whole bool) {
	if f.tooDear() {
		d = max(d, manyEvery)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-f.asked:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// confirmed notes that the copy has what the source held at a moment.
func (f *follower) confirmed(at time.Time) {
	f.mirror.Confirm(at)
	f.mu.Lock()
	was := f.status
	f.status.Confirmed = at
	if f.unread.err == nil {
		f.status.Class, f.status.Error = "", ""
		if was.State != OK {
			f.status.State, f.status.Since = OK, time.Now()
		}
	}
	if e, ok := errors.AsType[*Error](f.useless); ok {
		f.status.Class, f.status.Error = e.Class, oneLine(e.Err.Error())
	}
	if f.unlogged != nil {
		f.status.Class, f.status.Error = ClassUnlogged, oneLine(f.unlogged.Error())
	}
	class, text := f.status.Class, f.status.Error
	f.mu.Unlock()
	if f.useless != nil || f.unlogged != nil {
		f.trouble(class, text)
	} else if f.unread.err == nil && !f.told.IsZero() {
		f.told = time.Time{}
		f.log.Info("source is followed again", slog.String("away", time.Since(was.Since).Round(time.Second).String()))
	}
}

// failed notes why the copy could not be brought up to date.
func (f *follower) failed(err error) {
	f.mu.Lock()
	class, text := f.status.Fail(err)
	f.errors[class]++
	f.mu.Unlock()
	if class == ClassAuth && f.source != nil {
		f.source.close()
		f.source = nil
	}
	f.trouble(class, text)
}

// trouble logs why the source is not followed, now and then.
func (f *follower) trouble(class Class, text string) {
	if f.told.IsZero() || time.Since(f.told) >= troubles {
		f.told = time.Now()
		f.log.Warn("source is not followed", slog.String("class", string(class)), slog.String("error", text), slog.String("serves", "the copy"))
	}
}

// close ends the use of copy and source.
func (f *follower) close() {
	if f.source != nil {
		f.source.close()
	}
	if f.mirror != nil {
		f.mirror.Close()
	}
}

// oneLine makes a text of others a line of at most 300 octets.
func oneLine(text string) string {
	const most = 300
	line := make([]rune, 0, min(len(text), most))
	for _, r := range text[:min(len(text), most)] {
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		line = append(line, r)
	}
	return cmp.Or(string(line), "no reason was given")
}
