package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
)

// scripted is a table of which each call does what a test wants first. A test holds its lock, but for the time that it
// lets pass.
type scripted struct {
	mu sync.Mutex
	table
	before func(ctx context.Context, call string) error // nil: nothing
	hints  chan struct{}
	reads  int // whole ones
	polls  int
	opened int
	closed atomic.Int32
}

func newScripted(entries ...string) *scripted {
	s := &scripted{table: table{name: "one", rows: map[string]Row{}}}
	for _, e := range entries {
		s.put(e)
	}
	return s
}

// put adds a row, and says so in the log of the table.
func (s *scripted) put(entry string) {
	s.rows[entry] = Row{Entry: entry, ID: entry}
	s.log = append(s.log, entry)
}

func (s *scripted) do(ctx context.Context, call string) error {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(ctx, call)
}

// now is the table as it is.
func (s *scripted) now(calls *int) *table {
	s.mu.Lock()
	defer s.mu.Unlock()
	*calls++
	return &table{name: s.name, rows: maps.Clone(s.rows), log: slices.Clone(s.log), behind: s.behind}
}

func (s *scripted) Fingerprint(ctx context.Context) (string, error) {
	return "one", s.do(ctx, "fingerprint")
}

func (s *scripted) All(ctx context.Context, yield func(Row) error) (Mark, error) {
	err := s.do(ctx, "all")
	t := s.now(&s.reads)
	if err != nil {
		return "", err
	}
	return t.All(ctx, yield)
}

func (s *scripted) Changes(ctx context.Context, since Mark, yield func(Change) error) (Mark, error) {
	err := s.do(ctx, "changes")
	t := s.now(&s.polls)
	if err != nil {
		return "", err
	}
	return t.Changes(ctx, since, yield)
}

func (s *scripted) Wait(ctx context.Context) error {
	if err := s.do(ctx, "wait"); err != nil {
		return err
	}
	select {
	case <-s.hints:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *scripted) Close() error {
	s.closed.Add(1)
	return nil
}

// kept is a Keeper of one scripted source, in a bubble.
type kept struct {
	*scripted
	*Keeper
	t       *testing.T
	folder  string
	changed atomic.Int32
	log     *testkit.Log
	metrics *prometheus.Registry
	stop    func() // and wait for the end of Run
}

// bubble runs a test of a Keeper with a clock of its own.
func bubble(t *testing.T, s *scripted, set func(*List), test func(k *kept)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kept{scripted: s, t: t, folder: filepath.Join(t.TempDir(), "copy"), log: &testkit.Log{}, metrics: prometheus.NewRegistry()}
		s.hints = make(chan struct{}, 1) // of this bubble
		l := List{Name: "a", Every: 5 * time.Second, Reconcile: time.Hour, Copy: Options{Folder: k.folder},
			Open: func() (Source, error) {
				s.now(&s.opened)
				return s, nil
			}}
		if set != nil {
			set(&l)
		}
		k.Keeper = NewKeeper([]List{l}, func() { k.changed.Add(1) }, slog.New(slog.NewTextHandler(k.log, nil)), k.metrics)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Run(ctx)
		}()
		k.stop = func() {
			cancel()
			<-done
		}
		defer k.stop()
		synctest.Wait()
		s.mu.Lock()
		test(k)
		s.mu.Unlock()
	})
}

// after lets a time pass.
func (k *kept) after(d time.Duration) {
	timer := time.NewTimer(d)
	k.mu.Unlock()
	<-timer.C
	synctest.Wait()
	k.mu.Lock()
}

// settle lets all goroutines come to rest.
func (k *kept) settle() {
	k.mu.Unlock()
	synctest.Wait()
	k.mu.Lock()
}

func (k *kept) status() Status {
	k.t.Helper()
	s, has := k.Status("a")
	if !has {
		k.t.Fatal("the Keeper does not know its list")
	}
	return s
}

// is checks the state, and that the copy has what the table had.
func (k *kept) is(state SourceState, class Class, entries int) {
	k.t.Helper()
	s := k.status()
	if s.State != state || s.Class != class || (s.Error == "") != (state == OK) {
		k.t.Errorf("state %s, class %q, error %q, want %s, %q", s.State, s.Class, s.Error, state, class)
	}
	if entries > 0 {
		if got := served(k.t, k.folder); len(got) != entries || s.Rows != int64(entries) {
			k.t.Errorf("the copy has %q, and the status %d rows, want %d", got, s.Rows, entries)
		}
	}
}

func (k *kept) logged(text string) int { return strings.Count(k.log.String(), text) }

func TestKeeperFollows(t *testing.T) {
	bubble(t, newScripted("a@bulk.test", "b.test"), nil, func(k *kept) {
		k.is(OK, "", 2)
		started := k.changed.Load()
		k.put("c.test")
		k.after(5 * time.Second)
		k.is(OK, "", 3)
		testkit.Equal(t, "changes that were told of", k.changed.Load()-started, 1)
		k.put("d.test")
		k.hints <- struct{}{}
		k.after(time.Millisecond)
		k.is(OK, "", 4)
		polls := k.polls
		k.after(10 * time.Minute)
		testkit.AtMost(t, "polls in ten idle minutes", k.polls-polls, 120)
		testkit.Equal(t, "full reads, with the first", k.reads, 1)
		testkit.AtMost(t, "lag", k.status().Lag(time.Now()), 5*time.Second)
	})
}

func TestSourceAwayAndBack(t *testing.T) {
	bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
		k.is(OK, "", 1)
		confirmed := k.status().Confirmed
		k.before = func(context.Context, string) error {
			return &Error{ClassUnreachable, errors.New("connection\nrefused")}
		}
		k.after(5 * time.Second)
		since := time.Now()
		k.after(time.Hour)
		k.is(Away, ClassUnreachable, 1)
		s := k.status()
		testkit.AtMost(t, "off the time since when it is away", s.Since.Sub(since).Abs(), time.Second)
		testkit.Equal(t, "why it is away", s.Error, "connection refused")
		if lag := s.Lag(time.Now()); lag < time.Hour || lag > time.Since(confirmed) {
			t.Errorf("lag %s, want an hour", lag)
		}
		testkit.AtMost(t, "lines in an hour", k.logged("source is not followed"), 7)
		testkit.EqualSlices(t, "blockd_source_up", testkit.Samples(t, k.metrics, "blockd_source_up", "a"), []float64{0})
		if got := testkit.Samples(t, k.metrics, "blockd_source_errors_total", "a", "unreachable"); len(got) != 1 || got[0] < 800 {
			t.Errorf("blockd_source_errors_total = %v, want one each four seconds", got)
		}
		k.put("b.test")
		k.before = nil
		k.after(10 * time.Second)
		k.is(OK, "", 2)
		testkit.Equal(t, "its return is not logged", k.logged("source is followed again"), 1)
	})
}

// A source that is away at the start leaves the copy as it was.
func TestSourceAwayAtTheStart(t *testing.T) {
	s := newScripted("a@bulk.test")
	s.before = func(context.Context, string) error { return &Error{ClassUnreachable, errors.New("refused")} }
	bubble(t, s, nil, func(k *kept) {
		k.is(Away, ClassUnreachable, 0)
		testkit.Equal(t, "confirmed never", k.status().Confirmed.IsZero(), true)
		k.before = nil
		k.after(10 * time.Second)
		k.is(OK, "", 1)
	})
}

// Each class of an error is a state, and each error keeps the copy.
func TestStatesOfErrors(t *testing.T) {
	for class, state := range map[Class]SourceState{ClassTimeout: Away, ClassAuth: Away, ClassQuery: Away, ClassSchema: Away, ClassRefused: Away,
		ClassRows: Refused, ClassEncoding: Refused} {
		bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
			k.before = func(context.Context, string) error { return &Error{class, errors.New("no")} }
			k.after(5 * time.Second)
			k.is(state, class, 1)
			opened := k.opened
			k.after(30 * time.Second)
			testkit.Equal(t, fmt.Sprintf("%s: the driver was made again", class), k.opened > opened, class == ClassAuth)
			k.before = nil
			k.after(10 * time.Second)
			k.is(OK, "", 1)
		})
	}
}

// What a log does not tell is found by a full read, and counted. What came between the last poll and that read is not.
func TestReconcile(t *testing.T) {
	bubble(t, newScripted("a@bulk.test", "b.test", "c.test"), nil, func(k *kept) {
		delete(k.rows, "b.test") // without a line in the log
		k.rows["silent"] = Row{Entry: "d.test"}
		k.after(50 * time.Minute)
		k.is(OK, "", 3)
		k.before = func(_ context.Context, call string) error {
			if call == "all" {
				k.mu.Lock()
				defer k.mu.Unlock()
				k.put("late.test")
			}
			return nil
		}
		k.after(11 * time.Minute)
		k.is(OK, "", 4)
		got := testkit.Samples(t, k.metrics, "blockd_source_missed_total")
		testkit.Got(testkit.At(got, 0), k.reads)(t, "missed, and reads", 2, 2)
		k.before = nil
		k.after(61 * time.Minute)
		testkit.Got(k.status().Missed, k.reads)(t, "missed, and reads", 2, 3)
	})
}

func TestNowReadsTheWholeSource(t *testing.T) {
	bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
		k.rows["silent"] = Row{Entry: "d.test"}
		k.Now()
		k.settle()
		k.is(OK, "", 2)
		k.before = func(context.Context, string) error { return &Error{ClassUnreachable, errors.New("refused")} }
		k.after(6 * time.Second)
		k.before = nil
		k.rows["more"] = Row{Entry: "e.test"}
		k.Now() // ends a pause too
		k.settle()
		k.is(OK, "", 3)
	})
}

// A source that is away when it is to be read whole is read whole when it is back.
func TestNowIsNotForgotten(t *testing.T) {
	bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
		k.rows["silent"] = Row{Entry: "d.test"} // changes do not tell of it
		k.before = func(context.Context, string) error { return &Error{ClassUnreachable, errors.New("refused")} }
		k.Now()
		k.after(time.Minute)
		k.is(Away, ClassUnreachable, 1)
		k.before = nil
		k.after(10 * time.Second)
		k.is(OK, "", 2)
		testkit.Equal(t, "full reads", k.reads, 2)
	})
}

// Signals that come faster than a source is read are one.
func TestStormOfNow(t *testing.T) {
	bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
		reading := make(chan struct{})
		k.before = func(_ context.Context, call string) error {
			if call == "all" {
				<-reading
			}
			return nil
		}
		for range 1000 {
			k.Now()
		}
		k.settle()
		for range 1000 {
			k.Now()
		}
		k.before = nil
		close(reading)
		k.after(time.Second)
		testkit.Equal(t, "full reads", k.reads, 3)
	})
}

// A full read of the future, when the clock was wrong, does not hold the next one off.
func TestClockThatWasWrong(t *testing.T) {
	f := &follower{List: List{Reconcile: time.Hour, Copy: Options{Folder: filepath.Join(t.TempDir(), "copy")}}, changed: func() {},
		errors: map[Class]int{}, log: slog.New(slog.DiscardHandler)}
	s := newScripted("a@bulk.test")
	f.Open = func() (Source, error) { return s, nil }
	defer f.close()
	for i, tt := range []struct {
		ahead time.Duration
		reads int
	}{{0, 1}, {0, 1}, {30 * time.Second, 1}, {1000 * time.Hour, 2}, {0, 2}} {
		if tt.ahead > 0 {
			f.mirror.state.Read = time.Now().Add(tt.ahead)
		}
		testkit.Must(t, f.attempt(t.Context(), false))
		testkit.Equal(t, fmt.Sprintf("full reads after attempt %d", i), s.reads, tt.reads)
	}
}

// A source that can tell no changes is read whole at each poll.
func TestSourceWithoutChanges(t *testing.T) {
	bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
		k.behind = 1 << 30
		k.put("b.test")
		k.after(5 * time.Second)
		k.is(OK, "", 2)
		testkit.Got(k.reads, k.status().Missed)(t, "reads, and missed", 2, 0)
	})
}

func TestDriverPanics(t *testing.T) {
	bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
		k.before = func(context.Context, string) error { panic("postgres://blockd:hunter2@db") }
		k.after(6 * time.Second)
		k.is(Away, ClassQuery, 1)
		testkit.Lacks(t, k.status().Error+k.log.String(), "hunter2")
		k.before = nil
		k.after(10 * time.Second)
		k.is(OK, "", 1)
	})
}

// A call that does not answer ends, and one that does not end is left alone until it does.
func TestDriverHangs(t *testing.T) {
	for _, call := range []string{"fingerprint", "all", "changes"} {
		for _, deaf := range []bool{false, true} {
			t.Run(fmt.Sprint(call, deaf), func(t *testing.T) {
				bubble(t, newScripted("a@bulk.test"), func(l *List) { l.Reconcile = 20 * time.Minute }, func(k *kept) {
					release := make(chan struct{})
					k.before = func(ctx context.Context, now string) error {
						if now != call {
							return nil
						}
						if deaf {
							<-release
							return nil
						}
						<-ctx.Done()
						return ctx.Err()
					}
					k.after(40 * time.Minute)
					k.is(Away, ClassTimeout, 1)
					k.before = nil
					close(release)
					k.after(sorting + 10*time.Second)
					k.is(OK, "", 1)
				})
			})
		}
	}
}

// Rows that come slowly are no silence.
func TestSlowRead(t *testing.T) {
	s := newScripted()
	for i := range 20 {
		s.put(fmt.Sprintf("n%d.test", i))
	}
	slow := slowRows{s}
	bubble(t, s, func(l *List) { l.Open = func() (Source, error) { return slow, nil } }, func(k *kept) {
		k.after(20 * 2 * time.Minute)
		k.is(OK, "", 20)
	})
}

type slowRows struct{ *scripted }

func (s slowRows) All(ctx context.Context, yield func(Row) error) (Mark, error) {
	return s.scripted.All(ctx, func(r Row) error {
		timer := time.NewTimer(2 * time.Minute)
		<-timer.C
		return yield(r)
	})
}

// The end of the daemon does not wait for a driver.
func TestStop(t *testing.T) {
	for _, call := range []string{"fingerprint", "all", "wait"} {
		bubble(t, newScripted("a@bulk.test"), func(l *List) { l.Every = time.Hour }, func(k *kept) {
			release := make(chan struct{})
			k.before = func(_ context.Context, now string) error {
				if now == call {
					<-release
				}
				return nil
			}
			k.Now()
			k.settle()
			began := time.Now()
			k.mu.Unlock()
			k.stop()
			k.mu.Lock()
			testkit.AtMost(t, fmt.Sprintf("time to stop: %s", call), time.Since(began), grace)
			close(release)
			k.settle()
			testkit.Equal(t, fmt.Sprintf("%s: closings of the source", call), k.closed.Load(), 1)
		})
	}
}

// A storm of hints reads a source half of the time.
func TestHintsAreJoined(t *testing.T) {
	bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
		k.before = func(_ context.Context, call string) error {
			if call == "wait" {
				return errors.New("no hints today")
			}
			return nil
		}
		polls := k.polls
		k.after(time.Minute)
		if n := k.polls - polls; n < 10 || n > 13 {
			t.Errorf("%d polls in a minute without hints, want 12", n)
		}
	})
}

func TestPauses(t *testing.T) {
	var all []time.Duration
	for n := 1; n < 12; n++ {
		all = append(all, retry(n, 1))
		testkit.AtLeast(t, fmt.Sprintf("least pause after %d", n), retry(n, 0), retry(n, 1)*3/4)
	}
	if !slices.IsSorted(all) || all[0] != firstPause || all[10] != longestPause || longestPause+greeting >= 10*time.Second {
		t.Errorf("pauses %s", all)
	}
}

// A set in a Redis that is dear to read is read each ten minutes, and the state says what to do.
func TestDearSource(t *testing.T) {
	f := &follower{List: List{Whole: true, Every: time.Minute}, errors: map[Class]int{}, log: slog.New(slog.DiscardHandler)}
	testkit.Should(t, f.took(&Report{Rows: manyRows, Entries: manyRows}, nil))
	err := f.took(&Report{Rows: manyRows + 1, Entries: manyRows + 1}, nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Class != ClassRows {
		t.Errorf("%v, want class ClassRows", err)
	}
	f.Every = manyEvery
	testkit.Should(t, f.took(&Report{Rows: manyRows + 1, Entries: manyRows + 1}, nil))
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{"a\r\nb": "a  b", "": "no reason was given", "\xff\x00": "\ufffd ", strings.Repeat("x", 400): strings.Repeat("x", 300)} {
		testkit.Equal(t, fmt.Sprintf("oneLine(%q)", text), oneLine(text), want)
	}
}

// TestUnreadIsFollowed: while a full read is refused for good, what changes still acts, and the state says why. The
// full read is tried again.
func TestUnreadIsFollowed(t *testing.T) {
	for _, class := range []Class{ClassRows, ClassSchema, ClassTimeout, ClassQuery, ClassTruncated} {
		t.Run(string(class), func(t *testing.T) {
			bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
				k.rows["silent"] = Row{Entry: "d.test"} // changes do not tell of it
				tries := 0
				k.before = func(_ context.Context, call string) error {
					if call != "all" {
						return nil
					}
					tries++
					return &Error{class, errors.New("too much")}
				}
				k.Now()
				state := Away
				if class == ClassRows {
					state = Refused
				}
				for i := range 20 {
					k.put(fmt.Sprintf("n%d.test", i))
					k.after(time.Minute)
					k.is(state, class, 2+i)
					if behind := k.status().Lag(time.Now()); behind > 6*time.Second {
						t.Errorf("after %d min the copy is %v behind", i, behind)
					}
				}
				testkit.AtLeast(t, "tries in 20 min", tries, 5)
				testkit.AtMost(t, "tries in 20 min", tries, 20)
				k.before = nil
				k.after(longestUnread + 10*time.Second)
				k.is(OK, "", 22)
			})
		})
	}
}

// TestLostChangesAreTold: a source that has lost changes, as a Redis does in a failover, is read anew, and a line of
// the log says why; one that never tells changes is read anew without one.
func TestLostChangesAreTold(t *testing.T) {
	bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
		k.is(OK, "", 1)
		lost := true
		k.before = func(_ context.Context, call string) error {
			if call != "changes" || !lost {
				return nil
			}
			lost = false
			return fmt.Errorf("%w: the log has not got the change 7-1 any more: it was cut, or lost in a failover", ErrTooOld)
		}
		k.after(5 * time.Second)
		testkit.Got(k.reads, k.logged("source is read anew as a whole"), k.logged("it was cut, or lost in a failover"))(t, "full reads, and lines", 2, 1, 1)
		k.before = func(_ context.Context, call string) error {
			if call == "changes" {
				return ErrTooOld
			}
			return nil
		}
		k.after(30 * time.Second)
		testkit.Equal(t, "lines of a source that tells no changes", k.logged("source is read anew as a whole"), 1)
	})
}

// TestUnloggedIsReadWhole: a source that cannot tell all of its changes is read whole in their place, is not ok, and
// is followed again once it can.
func TestUnloggedIsReadWhole(t *testing.T) {
	bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
		k.is(OK, "", 1)
		k.before = func(_ context.Context, call string) error {
			if call == "changes" {
				return &Unlogged{"no trigger logs each change of senders (insert)", "blockd source ddl a prints what is missing"}
			}
			return nil
		}
		k.rows["b@bulk.test"] = Row{Entry: "b@bulk.test"} // no change tells of it
		k.after(10 * time.Second)
		s := k.status()
		testkit.Got(s.State, s.Class, s.Rows)(t, "the source", OK, ClassUnlogged, int64(2))
		testkit.Has(t, s.Error, "no trigger logs", "hint: blockd source ddl a")
		if s.Lag(time.Now()) > 6*time.Second {
			t.Errorf("it is read whole, and %v behind", s.Lag(time.Now()))
		}
		k.after(time.Minute)
		testkit.Equal(t, "warnings", k.logged("no trigger logs"), 1)
		k.before = nil
		k.after(10 * time.Second)
		k.is(OK, "", 2)
		testkit.Equal(t, "lines of what is followed again", k.logged("source is followed again"), 1)
	})
}

// TestUnloggedIsSparing: a full read that takes a minute in place of a poll is made every ten.
func TestUnloggedIsSparing(t *testing.T) {
	bubble(t, newScripted("a@bulk.test"), nil, func(k *kept) {
		k.before = func(ctx context.Context, call string) error {
			switch call {
			case "changes":
				return &Unlogged{"blind", "look"}
			case "all":
				took, cancel := context.WithTimeout(ctx, time.Minute)
				<-took.Done()
				cancel()
			}
			return nil
		}
		before := k.reads
		k.after(100 * time.Minute)
		testkit.AtMost(t, "reads in 100 minutes", k.reads-before, 12)
		testkit.AtLeast(t, "reads in 100 minutes", k.reads-before, 8)
	})
}

// TestUselessRows: a table without one row that is an entry is taken, since somebody may have taken the last good one
// out; but it is not ok.
func TestUselessRows(t *testing.T) {
	bubble(t, newScripted("no one", "nor this"), nil, func(k *kept) {
		s := k.status()
		testkit.Got(s.State, s.Class, s.Rows)(t, "the source", OK, ClassEncoding, int64(0))
		testkit.Has(t, s.Error, "2 of 2 rows are no entries, such as row ")
		k.after(time.Minute)
		testkit.Equal(t, "class", k.status().Class, ClassEncoding)
		k.put("a@bulk.test")
		k.after(20 * time.Second)
		k.is(OK, "", 1)
		delete(k.rows, "a@bulk.test")
		k.scripted.table.log = append(k.scripted.table.log, "a@bulk.test")
		k.after(10 * time.Second)
		testkit.Equal(t, "entries", k.status().Rows, int64(0))
	})
}
