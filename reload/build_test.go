package reload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/digest"
)

// TestBrokenListDoesNotHoldBackTheOthers breaks list a in every way that a build
// or the gate sees, and changes list b before, with and after it: b serves as it
// is, a as it was.
func TestBrokenListDoesNotHoldBackTheOthers(t *testing.T) {
	tests := []struct {
		name, class string
		spoil       func(*daemon)
	}{
		{"missing", "missing", func(d *daemon) { d.remove("a.txt") }},
		{"a folder in its place", "directory", func(d *daemon) {
			// In one step: a look in between would find the file missing.
			d.mkdir("spare")
			d.must(unix.Renameat2(unix.AT_FDCWD, d.path("spare"), unix.AT_FDCWD, d.path("a.txt"), unix.RENAME_EXCHANGE))
		}},
		{"a loop of symlinks", "symlink", func(d *daemon) { d.symlink("a.txt", "a.txt") }},
		{"an error page", "html", func(d *daemon) { d.write("a.txt", "<!doctype html>\n") }},
		{"no line is an entry", "only-errors", func(d *daemon) { d.write("a.txt", "one two\nthree four\n") }},
		{"torn", "truncated", func(d *daemon) {
			whole := packed(d.t, strings.Repeat("x.example\ny.example\n", 1000))
			d.write("a.txt", whole[:len(whole)-9])
		}},
		{"its own test fails", "self-test", func(d *daemon) { d.write("a.txt", "old.example\n#? block x@other.example\n") }},
		{"emptied", "empty", func(d *daemon) { d.write("a.txt", "# nothing\n") }},
		{"shrunk", "shrunk", func(d *daemon) { d.write("a.txt", numbered(0, 10)) }},
		{"old", "stale", func(d *daemon) {
			d.write("spare", "backup.example\n"+numbered(0, 200))
			d.date("spare", 31*testDay)
			d.rename("spare", "a.txt")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, map[string]string{"a.txt": "old.example\n" + numbered(0, 200), "b.txt": "b0.example\n"})
			d.settings.Lists[0].MaxShrink, d.settings.Lists[0].MaxAge = 0.5, 30*testDay
			d.open().watching()
			first := d.Status().Generation

			tt.spoil(d)
			d.waitProblem("list a", tt.class)
			d.looks(2)
			testkit.Equal(t, "a generation of nothing new", d.Status().Generation, first)
			d.wantMetric(`blockd_reloads_total{result="refused"}`, "1") // once, however often it is looked at
			for i := 1; i <= 3; i++ {
				d.served("b.txt", fmt.Sprintf("b%d.example\n", i), fmt.Sprintf("x@b%d.example", i))
				d.waitProblem("list a", tt.class)
				d.serves("it serves", "x@old.example", "x@n199.example", "!"+fmt.Sprintf("x@b%d.example", i-1))
				if s := d.Status(); !s.Ready {
					t.Errorf("not ready: %+v", s)
				}
			}
			generation := d.Status().Generation
			d.looks(2)
			testkit.Equal(t, "built again without a change", d.Status().Generation, generation)
			if n := d.count("level=ERROR"); n != 1 || d.count("hint=") != 1 || d.count("class=") != 1 || d.count("file=") != 1 {
				t.Errorf("%d log lines for one problem, want one with file, class and hint:\n%s", n, d.log)
			}
			d.wantMetric("blockd_reload_last_attempt_success", "0")

			// A restart finds the same.
			again := &daemon{t: t, dir: d.dir, settings: d.settings}
			again.open()
			if s := again.Status(); s.Generation != generation || !again.listed("x@old.example") || len(s.Problems) != 1 || !s.Ready {
				t.Errorf("after a restart: %+v", s)
			}

			d.remove("a.txt")
			d.write("new", "new.example\n"+numbered(0, 200))
			d.rename("new", "a.txt")
			d.waitListed("x@new.example")
			d.waitUnlisted("x@old.example")
			d.waitWell()
			d.wantMetric("blockd_reload_last_attempt_success", "1")
		})
	}
}

// TestEveryAnswerIsOfOneGeneration swaps under readers. Lists a and b always
// hold the same name, another one in each generation, so a reader that takes one
// generation finds one name, in both lists.
func TestEveryAnswerIsOfOneGeneration(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "n0.example\n", "b.txt": "n0.example\n"})
	d.settings.Quiet, d.settings.Poll = time.Hour, time.Hour
	d.open()
	d.start()
	const generations, names = 5, 3
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ix := d.Live()
				found := 0
				for i := range names {
					found += len(matches(t, ix, fmt.Sprintf("x@n%d.example", i)))
				}
				if found != 2 {
					t.Errorf("generation %s has %d matches, want one in each list", ix.Generation(), found)
					return
				}
			}
		})
	}
	for g := 1; g <= generations; g++ {
		for _, name := range []string{"a.txt", "b.txt"} {
			d.write(name, fmt.Sprintf("n%d.example\n", g%names))
		}
		d.Now()
		d.waitListed(fmt.Sprintf("x@n%d.example", g%names))
	}
	close(stop)
	readers.Wait()
	d.wantMetric(`blockd_reloads_total{result="swapped"}`, fmt.Sprint(generations+1))
}

// TestBrokenAndChangedAtOnce: the first look after both finds them together.
func TestBrokenAndChangedAtOnce(t *testing.T) {
	for _, text := range []string{"", "<html>", "one two\n"} {
		d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "b0.example\n", "c.txt": "c0.example\n"}).open()
		d.write("a.txt", text)
		d.write("b.txt", "b1.example\n")
		d.remove("c.txt")
		d.look(t.Context(), true)
		if !d.listed("x@old.example") || !d.listed("x@b1.example") || !d.listed("x@c0.example") || len(d.Status().Problems) != 2 {
			t.Errorf("a.txt %q: status %+v\n%s", text, d.Status(), d.log)
		}
		if got, problems := d.decide(t.Context()); got != same || len(problems) != 2 {
			t.Errorf("a.txt %q: the next look is %d with %d problems, want nothing new", text, got, len(problems))
		}
	}
}

// TestGlobIsHeldWhole: of a list that the gate refuses no file is taken.
func TestGlobIsHeldWhole(t *testing.T) {
	d := newDaemon(t, map[string]string{"b.txt": "b0.example\n"})
	d.write("lists/1.txt", numbered(0, 150))
	d.write("lists/2.txt", numbered(1000, 150))
	d.settings.Lists = append([]List{{Name: "a", Path: d.path("lists/*.txt"), Settings: d.settings.Lists[0].Settings, MaxShrink: 0.5}}, d.settings.Lists...)
	d.open()
	d.write("lists/1.txt", "first.example\n")
	d.write("lists/2.txt", "second.example\n")
	d.write("b.txt", "b1.example\n")
	d.look(t.Context(), true)
	problems := d.Status().Problems
	if !d.listed("x@n149.example") || !d.listed("x@n1149.example") || d.listed("x@first.example") || d.listed("x@second.example") ||
		!d.listed("x@b1.example") || len(problems) != 1 || !strings.Contains(problems[0], "shrunk: 2 entries are left of 300") {
		t.Errorf("problems %q\n%s", problems, d.log)
	}
}

// TestCacheOlderThanWhatServes: an operator has compiled without the cache. What the cache
// has of a list was taken back since, and must not return when the list breaks.
func TestCacheOlderThanWhatServes(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "taken-back.example\n", "b.txt": "b0.example\n"}).open()
	d.write("a.txt", "newer.example\n")
	draft, err := index.Build(t.Context(), d.settings.Path, d.sources(), index.Options{})
	d.must(err)
	d.must(draft.Publish())
	d.open()
	d.serves("it serves", "x@newer.example")
	d.write("a.txt", "<html>")
	d.write("b.txt", "b1.example\n")
	d.look(t.Context(), true)
	if d.listed("x@taken-back.example") || !d.listed("x@newer.example") || len(d.Status().Problems) != 1 {
		t.Errorf("status %+v\n%s", d.Status(), d.log)
	}
}

// TestCacheThatIsGone: without it a broken list keeps the generation before, whole.
func TestCacheThatIsGone(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "b0.example\n"}).open().watching()
	d.must(os.RemoveAll(d.settings.Path + index.CacheSuffix))
	d.write("a.txt", "<html>")
	d.waitProblem("list a", "html")
	d.write("b.txt", "b1.example\n")
	d.looks(2)
	d.serves("it serves", "x@old.example", "x@b0.example", "!x@b1.example")
	d.cured("a.txt", "new.example\n", "x@b1.example")
	if !d.listed("x@new.example") || time.Since(d.Status().Since) > deadline {
		t.Errorf("status %+v", d.Status())
	}
}

// TestGateAtARestartWithAnotherConfiguration: the index on disk is not of these
// lists, so it cannot serve, but what it says of a list that is configured as it was
// still counts.
func TestGateAtARestartWithAnotherConfiguration(t *testing.T) {
	spoilt := func(t *testing.T, text string) *daemon {
		t.Helper()
		d := newDaemon(t, map[string]string{"a.txt": "old.example\n" + numbered(0, 200), "b.txt": "b0.example\n"})
		d.settings.Lists[0].MaxShrink = 0.5
		d.open()
		d.write("a.txt", text)
		d.write("b.txt", "b1.example\n")
		d.settings.Lists[1].Settings.Reason = "another"
		return d
	}
	for _, tt := range []struct{ name, class, text string }{
		{"shrunk", "shrunk", numbered(0, 10)},
		{"emptied", "empty", "# nothing\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := spoilt(t, tt.text).open()
			if s := d.Status(); !s.Ready || len(s.Refusals) != 1 || string(s.Refusals[0].Class) != tt.class || !d.listed("x@old.example") || !d.listed("x@b1.example") {
				t.Errorf("status %+v", s)
			}
			d.start()
			d.served("b.txt", "b2.example\n", "x@b2.example")
			d.waitProblem("list a", tt.class)
			d.serves("the next reload has let it in", "x@old.example")
			d.cured("a.txt", "back.example\n"+numbered(0, 200), "x@back.example")
		})
	}
	t.Run("what it held is nowhere: a first start", func(t *testing.T) {
		d := spoilt(t, numbered(0, 10))
		d.must(os.RemoveAll(d.settings.Path + index.CacheSuffix))
		d.open()
		if s := d.Status(); !s.Ready || len(s.Problems) > 0 || d.listed("x@old.example") || !d.listed("x@n1.example") || !d.listed("x@b1.example") {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("a list that is configured otherwise is another list", func(t *testing.T) {
		d := spoilt(t, numbered(0, 10))
		d.settings.Lists[0].Settings.Reason = "another too"
		d.open()
		if s := d.Status(); !s.Ready || len(s.Problems) > 0 || d.listed("x@old.example") {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("a list that is gone by itself", func(t *testing.T) {
		d := spoilt(t, "")
		d.remove("a.txt")
		d.open()
		if s := d.Status(); len(s.Refusals) != 1 || s.Refusals[0].Class != lists.Missing || !d.listed("x@old.example") || !d.listed("x@b1.example") {
			t.Errorf("status %+v", s)
		}
	})
}

// A list that was never good is away for just as long as a build reads it. The next look
// finds what the last one found, which the build has not seen.
func TestListThatIsAwayDuringABuild(t *testing.T) {
	for _, tt := range []struct {
		name string
		back func(*daemon)
	}{
		{"and is written again", func(d *daemon) { d.write("b.txt", "b.example\n") }},
		{"and is moved back", func(d *daemon) { d.rename("b.txt.away", "b.txt") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDaemon(t, map[string]string{"a.txt": "a.example\n", "b.txt": "no entry at all\n"})
			var before, after func()
			d.settings.Renew = func(context.Context) bool {
				if before != nil {
					before()
				}
				return false
			}
			d.settings.Served = func(*index.Index) {
				if after != nil {
					after()
				}
			}
			d.open()
			d.write("a.txt", "new.example\n")
			d.write("b.txt", "b.example\n")
			before = func() { d.rename("b.txt", "b.txt.away") }
			after = func() { tt.back(d) }
			d.look(t.Context(), false)
			d.serves("the list was not away", "x@new.example", "!x@b.example")
			before, after = nil, nil
			d.look(t.Context(), false)
			if problems := d.Status().Problems; !d.listed("x@b.example") || len(problems) > 0 {
				t.Errorf("the list is missing for good: %v; log:\n%s", problems, d.log)
			}
		})
	}
}

// Another setting of hashes is served as soon as it is built, and meanwhile the index that
// is there serves on. Small changes act on digests too.
func TestHashesAreBuiltWhenTheyAreConfigured(t *testing.T) {
	d := small(t, map[string]string{"a.txt": "x@bad.example\n"}).open()
	testkit.MustEqual(t, "hashes", d.Live().Hashes(), 0)
	for _, hashes := range []digest.Set{digest.SetOf(digest.SHA1), digest.SetOf(digest.MD5, digest.SHA1), 0} {
		d.settings.Hashes = hashes
		d.open()
		onDisk, err := index.Open(d.settings.Path)
		d.must(err)
		if d.Live().Hashes() != hashes || onDisk.Hashes() != hashes {
			t.Errorf("hashes %v serve, %v are on disk, want %v", d.Live().Hashes(), onDisk.Hashes(), hashes)
		}
		before := d.Live().Generation()
		if d.open(); d.Live().Generation() != before {
			t.Error("built again for nothing")
		}
	}
	d.settings.Hashes = digest.SetOf(digest.SHA1)
	d.open().start()
	lock := d.locked()
	d.served("a.txt", "x@bad.example\nnew@bad.example\n", "new@bad.example")
	if a, found, err := d.Live().AddressOf(digest.Of(digest.SHA1, "new@bad.example")); err != nil || !found || a.String() != "new@bad.example" {
		t.Errorf("AddressOf = %v, %v, %v", a, found, err)
	}
	lock.Discard()
	d.wait("the build", func() bool { return !d.Live().Updated() })
	if _, found, err := d.Live().AddressOf(digest.Of(digest.SHA1, "new@bad.example")); err != nil || !found {
		t.Errorf("AddressOf = %v, %v", found, err)
	}
}

// TestFailedBuildsRest holds that a build which fails each time is tried again after rests that grow, and at once when a file
// changes.
func TestFailedBuildsRest(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "one@a.example\n"}).open()
	var mu sync.Mutex
	var tried []time.Time
	d.Reloader.settings.Build = func(context.Context, string, []index.Source, index.Options, bool) (*index.Draft, error) {
		mu.Lock()
		defer mu.Unlock()
		tried = append(tried, time.Now())
		return nil, errors.New("no space left on device")
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(tried)
	}
	d.start()
	d.write("a.txt", "two@a.example\n")
	d.wait("four builds", func() bool { return count() >= 4 })
	mu.Lock()
	for i := 2; i < 4; i++ { // the first may be tried twice, for two events
		if rest, least := tried[i].Sub(tried[i-1]), testPoll<<(i-2); rest < least {
			t.Errorf("build %d comes %v after the one before, want %v at least", i+1, rest, least)
		}
	}
	mu.Unlock()
	before := count()
	d.write("a.txt", "three@a.example\n")
	d.wait("a build of the changed file", func() bool { return count() > before })
	d.waitProblem("no space left")
}
