package reload

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
)

// bench runs a loop in a bubble and writes down when it looks.
type bench struct {
	events, asked chan struct{}

	mu         sync.Mutex // guards what follows
	moved, due func() bool
	again      func() bool
	start      time.Time
	looks      []time.Duration // since start; forced ones negative
}

// set changes b under its lock; answers run under it too.
func (b *bench) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func no() bool { return false }

// runLoop runs script beside a loop of 500 ms and 30 s, and returns when it has
// looked, the first look aside that every start makes.
func runLoop(t *testing.T, script func(b *bench)) (looks []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{events: make(chan struct{}, 1), asked: make(chan struct{}, 1), moved: no, due: no, again: no, start: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l := loop{quiet: 500 * time.Millisecond, poll: 30 * time.Second,
				moved: func() (yes bool) { b.set(func() { yes = b.moved() }); return yes },
				due:   func() (yes bool) { b.set(func() { yes = b.due() }); return yes },
				look: func(forced bool) (next state) {
					b.set(func() {
						at := time.Since(b.start)
						if forced {
							at = -at
						}
						b.looks = append(b.looks, at)
						if next = resting; b.again() {
							next = probing
						}
					})
					return next
				},
			}
			l.run(ctx, b.events, nil, b.asked)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []time.Duration{500 * time.Millisecond}; !slices.Equal(b.looks, want) {
			t.Errorf("looks at the start = %v, want %v", b.looks, want)
		}
		b.set(func() { b.looks, b.start = nil, time.Now() })
		script(b)
		synctest.Wait()
		cancel()
		<-done
		looks = b.looks
	})
	return looks
}

func (b *bench) event() { b.events <- struct{}{} }

func TestLoop(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name   string
		script func(*bench)
		want   []time.Duration
	}{
		{"nothing happens", func(b *bench) { time.Sleep(10 * time.Minute) }, nil},
		{"one event: after the quiet time", func(b *bench) {
			b.event()
			time.Sleep(5 * time.Second)
		}, []time.Duration{500 * ms}},
		{"a burst of events: once, after the last", func(b *bench) {
			for range 20 {
				b.event()
				time.Sleep(100 * ms)
			}
			time.Sleep(5 * time.Second)
		}, []time.Duration{2400 * ms}},
		{"two bursts: twice", func(b *bench) {
			for range 2 {
				b.event()
				time.Sleep(2 * time.Second)
			}
		}, []time.Duration{500 * ms, 2500 * ms}},
		{"events without end: at ten quiet times", func(b *bench) {
			for range 120 {
				b.event()
				time.Sleep(100 * ms)
			}
		}, []time.Duration{5000 * ms, 10000 * ms}},
		{"asked: at once, and forced", func(b *bench) {
			b.asked <- struct{}{}
			time.Sleep(5 * time.Second)
		}, []time.Duration{0}},
		{"asked in the middle of a burst: once", func(b *bench) {
			b.event()
			time.Sleep(200 * ms)
			b.asked <- struct{}{}
			time.Sleep(5 * time.Second)
		}, []time.Duration{-200 * ms}},
		{"poll finds a change", func(b *bench) {
			b.set(func() { b.due = func() bool { b.due = no; return true } })
			time.Sleep(time.Minute)
		}, []time.Duration{29500 * ms}},
		{"poll finds a file that is still being written", func(b *bench) {
			calls := 0
			b.set(func() {
				b.due = func() bool { b.due = no; return true }
				b.moved = func() bool { calls++; return calls < 4 }
			})
			time.Sleep(time.Minute)
		}, []time.Duration{31000 * ms}},
		{"poll finds one that is written for ever", func(b *bench) {
			b.set(func() {
				b.due = func() bool { b.due = no; return true }
				b.moved = func() bool { return true }
			})
			time.Sleep(time.Minute)
		}, []time.Duration{34000 * ms}},
		{"file changed under a look: again, ever later", func(b *bench) {
			b.set(func() { b.again = func() bool { return len(b.looks) < 7 } })
			b.event()
			time.Sleep(time.Minute)
		}, []time.Duration{500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 12000 * ms, 16000 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testkit.EqualSlices(t, "looks at", runLoop(t, tt.script), tt.want)
		})
	}
}

// From its first moment a generation is shown without the problems that it ends, and with those
// that remain.
func TestProblemEndsWithTheSwap(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "a.example\n", "b.txt": "b.example\n"})
	var seen Status
	d.settings.Served = func(*index.Index) {
		if d.Reloader != nil {
			seen = d.Status()
		}
	}
	d.open()
	d.remove("a.txt")
	d.write("b.txt", "<html>")
	d.look(t.Context(), false)
	if n := len(d.Status().Problems); n != 2 {
		t.Fatalf("%d problems, want two: %+v", n, d.Status())
	}
	d.write("a.txt", "new.example\n")
	d.look(t.Context(), false)
	if len(seen.Problems) != 1 || !strings.HasPrefix(seen.Problems[0], "list b: ") || len(seen.Refusals) != 1 {
		t.Errorf("at the swap: problems %q, refusals %v, want those of list b", seen.Problems, seen.Refusals)
	}
	d.write("b.txt", "new.example\n")
	d.look(t.Context(), false)
	if len(seen.Problems)+len(seen.Refusals) > 0 {
		t.Errorf("at the swap: problems %q, refusals %v, want none", seen.Problems, seen.Refusals)
	}
	if n := d.count("lists are in order again"); n != 1 {
		t.Errorf("the end of all is logged %d times\n%s", n, d.log)
	}
}

// small is a daemon that serves every small change from memory first.
func small(t *testing.T, files map[string]string) *daemon {
	t.Helper()
	d := newDaemon(t, files)
	d.settings.updateFrom = 1
	return d
}

// locked keeps all processes from building the daemon's index until it is discarded.
func (d *daemon) locked() *index.Draft {
	d.t.Helper()
	sources, err := Sources(d.settings.Lists)
	d.must(err)
	draft, err := index.Build(d.t.Context(), d.settings.Path, sources, index.Options{})
	d.must(err)
	return draft
}

// onDiskListed asks the file.
func (d *daemon) onDiskListed(sender string) bool {
	d.t.Helper()
	ix, err := index.Open(d.settings.Path)
	d.must(err)
	return listed(d.t, ix, sender)
}

// TestSmallChangeActsBeforeTheBuild: no build is possible, and the change acts all the
// same. The build follows.
func TestSmallChangeActsBeforeTheBuild(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start func(*daemon)
	}{
		{"with events", func(d *daemon) { d.start() }},
		{"by the poll", func(d *daemon) { d.startWithoutEvents() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := small(t, map[string]string{"a.txt": "old.example\nstays.example\n", "b.txt": "b.example\n"}).open()
			tt.start(d)
			before := d.Status().Generation
			lock := d.locked()
			d.served("a.txt", "new.example\nstays.example\n", "x@new.example")
			d.serves("the change is served in part", "!x@old.example", "x@stays.example", "x@b.example")
			d.wantMetric("blockd_reload_updates_total", "1")
			d.wait("another generation", func() bool { return d.Status().Generation != before })
			d.write("b.txt", "b.example\nb2.example\n") // and again
			d.waitListed("x@b2.example")
			if !d.listed("x@new.example") || d.onDiskListed("x@new.example") {
				t.Error("the first change is gone, or was built")
			}
			lock.Discard()
			d.wait("the build", func() bool { return !d.Live().Updated() })
			d.waitWell()
			if !d.onDiskListed("x@new.example") || !d.onDiskListed("x@b2.example") || d.onDiskListed("x@old.example") {
				t.Error("the file is not what serves")
			}
			if got := d.metric("blockd_list_entries{list=\"b\"}"); got != "2" {
				t.Errorf("list b has %s entries", got)
			}
		})
	}
}

// TestEndBeforeTheBuild: a daemon that starts again finds an index of other lists.
func TestEndBeforeTheBuild(t *testing.T) {
	d := small(t, map[string]string{"a.txt": "old.example\n", "b.txt": "b.example\n"}).open()
	stop := d.start()
	lock := d.locked()
	d.served("a.txt", "new.example\n", "x@new.example")
	stop()
	lock.Discard()
	for _, from := range []uint64{1, defaultUpdateFrom} { // served from memory once more, then built
		if d.onDiskListed("x@new.example") {
			t.Error("the file was built")
		}
		d.settings.updateFrom = from
		if d.open(); !d.listed("x@new.example") || d.listed("x@old.example") {
			t.Errorf("small from %d keys on: what serves is not the lists as they are", from)
		}
	}
	if !d.onDiskListed("x@new.example") {
		t.Error("the file was not built")
	}
}

// TestGateOfASmallChange: what a build may not serve, memory may not.
func TestGateOfASmallChange(t *testing.T) {
	for _, tt := range []struct{ name, text, class string }{
		{"shrunk", numbered(0, 10), "shrunk"},
		{"emptied", "# nothing\n", "empty"},
		{"refused", "<html><body>404</body></html>\n", "html"},
		{"fails its own test", "old.example\n#? pass <> x@old.example\n" + numbered(0, 200), string(lists.SelfTest)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := small(t, map[string]string{"a.txt": "old.example\n" + numbered(0, 200), "b.txt": "b.example\n"})
			d.settings.Lists[0].MaxShrink = 0.5
			d.open().start()
			d.write("a.txt", tt.text)
			d.waitProblem("list a", tt.class)
			if !d.listed("x@old.example") || d.metric("blockd_reload_updates_total") != "0" {
				t.Error("it serves")
			}
			d.write("b.txt", "b2.example\n") // and the others go on
			d.waitListed("x@b2.example")
			d.waitProblem("list a", tt.class)
			d.serves("it serves", "x@old.example")
		})
	}
}

// TestAcceptedOnce: what an operator has accepted serves once, from memory too. The same once more is to be accepted
// once more.
func TestAcceptedOnce(t *testing.T) {
	full := "old.example\n" + numbered(0, 200)
	d := small(t, map[string]string{"a.txt": full, "b.txt": "b.example\n"})
	d.settings.Lists[0].MaxShrink = 0.5
	d.open()
	look := func(file, text string) bool {
		d.write(file, text)
		d.look(t.Context(), true)
		return d.listed("x@old.example")
	}
	refused := look("a.txt", numbered(0, 10))
	d.compiled(true, "a")
	accepted := !look("b.txt", "b2.example\n") && d.listed("x@b2.example") && d.Live().Updated()
	if full, again := look("a.txt", full), look("a.txt", numbered(0, 10)); !refused || !accepted || !full || !again {
		t.Errorf("refused %v, accepted from memory %v, full again %v, and refused once more %v", refused, accepted, full, again)
	}
}

func TestLargeChangesAndSmallIndexesAreBuilt(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open()
	d.start()
	d.served("a.txt", "new.example\n", "x@new.example")
	if d.Live().Updated() || d.metric("blockd_reload_updates_total") != "0" {
		t.Error("an index that is built in no time was served from memory")
	}
}

// TestBuildGivesWay: a change of a file ends the build of what serves already.
func TestBuildGivesWay(t *testing.T) {
	d := small(t, map[string]string{"a.txt": "old.example\n"}).open()
	v := d.view(t.Context(), time.Now())
	calm, end := d.calm(t.Context(), v)
	d.write("a.txt", strings.Repeat("new.example\n", 2))
	d.wait("the end", func() bool { return errors.Is(context.Cause(calm), errDisturbed) })
	end()

	quiet, end := d.calm(t.Context(), v)
	end()
	if context.Cause(quiet) == errDisturbed {
		t.Error("ended by a change that was none")
	}
}

// TestBuildsOfRestlessLists: each build that had to give way makes the next one wait for a longer quiet.
func TestBuildsOfRestlessLists(t *testing.T) {
	r := &Reloader{settings: Settings{Quiet: time.Second}}
	var all []time.Duration
	for r.yielded = range 30 {
		all = append(all, r.calmFor())
	}
	if all[0] != 0 || all[1] != 2*time.Second || all[3] != 8*time.Second || all[29] != mostCalm {
		t.Errorf("%s", all)
	}
}
