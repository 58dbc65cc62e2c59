package reload

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"blockd/index"
	"blockd/lists"
)

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
			if d.listed("x@old.example") || !d.listed("x@stays.example") || !d.listed("x@b.example") {
				t.Error("the change is served in part")
			}
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
			if !d.listed("x@old.example") {
				t.Error("it serves")
			}
		})
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
