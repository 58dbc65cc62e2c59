package reload

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// date sets a file's time to so long ago.
func (d *daemon) date(name string, ago time.Duration) {
	d.t.Helper()
	at := time.Now().Add(-ago)
	d.must(os.Chtimes(d.path(name), at, at))
}

const testDay = 24 * time.Hour

func TestOldFileDoesNotReplaceANewerOne(t *testing.T) {
	tests := []struct {
		rule    string
		setup   func(*daemon) // before Open; nil: nothing
		do      func(*daemon)
		refused bool
	}{
		{"an old backup", nil, func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", 31*testDay) }, true},
		{"a file that is young enough", nil, func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", 29*testDay) }, false},
		{"a file of the future", nil, func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", -31*testDay) }, false},
		{"an old file as it was, beside a changed one", func(d *daemon) { d.date("a.txt", 99*testDay) },
			func(d *daemon) { d.write("b.txt", "new.example\n") }, false},
		{"a list without a bound", func(d *daemon) { d.settings.Lists[0].MaxAge = 0 },
			func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", 9999*testDay) }, false},
		{"one of a glob", func(d *daemon) {
			d.mkdir("lists")
			d.write("lists/1.txt", "old.example\n")
			d.settings.Lists[0].Path = d.path("lists/*.txt")
		}, func(d *daemon) { d.write("lists/2.txt", "new.example\n"); d.date("lists/2.txt", 31*testDay) }, true},
		{"a server has confirmed it", func(d *daemon) {
			d.settings.Lists[0].Confirmed = func() time.Time { return time.Now().Add(-time.Hour) }
		}, func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", 31*testDay) }, false},
		{"a server has confirmed it long ago", func(d *daemon) {
			d.settings.Lists[0].Confirmed = func() time.Time { return time.Now().Add(-31 * testDay) }
		}, func(d *daemon) { d.write("a.txt", "new.example\n") }, true},
		{"a server has never confirmed it", func(d *daemon) {
			d.settings.Lists[0].Confirmed = func() time.Time { return time.Time{} }
		}, func(d *daemon) { d.write("a.txt", "new.example\n"); d.date("a.txt", 31*testDay) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "always.example\n"})
			d.settings.Lists[0].MaxAge = 30 * testDay
			if tt.setup != nil {
				tt.setup(d)
			}
			d.open()
			tt.do(d)
			d.look(t.Context(), true)
			problems := strings.Join(d.Status().Problems, "\n")
			if d.listed("x@new.example") == tt.refused || tt.refused != strings.Contains(problems, ": stale: is of ") {
				t.Errorf("problems %q, want refused %v", problems, tt.refused)
			}
			if tt.refused && !strings.HasSuffix(problems, "Z, older than max_age = 30d, and not what serves") {
				t.Errorf("problem %q", problems)
			}
		})
	}
}

// TestOldFileAtTheFirstStart: there is nothing newer that it would replace.
func TestOldFileAtTheFirstStart(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	d.settings.Lists[0].MaxAge = 30 * testDay
	d.date("a.txt", 31*testDay)
	d.open()
	if s := d.Status(); !d.listed("x@old.example") || !s.Ready || len(s.Problems) > 0 || len(s.Stale) != 1 || s.Stale[0] != "a" {
		t.Errorf("status %+v", s)
	}
}

// TestListThatGetsOldServesOn goes through a list's life: it is told of once when
// it is old, and once when it is not any more, however often it is looked at.
func TestListThatGetsOldServesOn(t *testing.T) {
	var confirmed atomic.Pointer[time.Time]
	confirm := func(ago time.Duration) {
		at := time.Now().Add(-ago)
		confirmed.Store(&at)
	}
	confirm(0)
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "always.example\n"})
	d.settings.Lists[0].MaxAge = 30 * testDay
	d.settings.Lists[0].Confirmed = func() time.Time {
		if info, err := os.Stat(d.path("a.txt")); err == nil && info.Size() == 0 {
			return time.Now()
		}
		return *confirmed.Load()
	}
	d.settings.Lists[1].MaxAge = 30 * testDay
	d.open()
	d.start()
	d.wantMetric(`blockd_list_stale{list="a"}`, "0")

	confirm(31 * testDay) // the server is silent for a month, and no file changes
	d.wantMetric(`blockd_list_stale{list="a"}`, "1")
	d.wantMetric(`blockd_list_stale{list="b"}`, "0")
	d.Now()
	d.looks(2)
	if s := d.Status(); len(s.Problems) > 0 || !s.Ready || !d.listed("x@old.example") || len(s.Stale) != 1 || s.Stale[0] != "a" {
		t.Errorf("status %+v", s)
	}
	if n := d.count("list is old"); n != 1 {
		t.Errorf("told of %d times:\n%s", n, d.log)
	}

	// Another file that is refused does not make what serves younger.
	d.write("a.txt", "")
	d.waitProblem("empty")
	d.looks(2)
	d.wantMetric(`blockd_list_stale{list="a"}`, "1")

	confirm(0)
	d.write("a.txt", "old.example\n")
	d.waitWell()
	d.wantMetric(`blockd_list_stale{list="a"}`, "0")
	if d.count("list is fresh again") != 1 || len(d.Status().Stale) > 0 {
		t.Errorf("not over: %+v\n%s", d.Status(), d.log)
	}
}

// TestFileThatNobodyHasLookedAtMakesNothingYounger: what its server has confirmed
// is the new file, and what serves is the old one.
func TestFileThatNobodyHasLookedAtMakesNothingYounger(t *testing.T) {
	at := time.Now().Add(-31 * testDay)
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	d.settings.Lists[0].MaxAge = 30 * testDay
	d.settings.Lists[0].Confirmed = func() time.Time { return at }
	d.open()
	d.write("a.txt", "new.example\n")
	at = time.Now()
	if d.age(at); len(d.Status().Stale) != 1 {
		t.Error("fresh by a file that does not serve")
	}
	d.look(t.Context(), true)
	if !d.listed("x@new.example") || len(d.Status().Stale) > 0 {
		t.Errorf("status %+v", d.Status())
	}
}

// TestTouchedFileIsYoungAgain: writing the same again says that it still holds.
func TestTouchedFileIsYoungAgain(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	d.settings.Lists[0].MaxAge = 30 * testDay
	d.date("a.txt", 31*testDay)
	d.open()
	d.start()
	d.wantMetric(`blockd_list_stale{list="a"}`, "1")
	generation := d.Status().Generation
	d.write("a.txt", "old.example\n")
	d.wantMetric(`blockd_list_stale{list="a"}`, "0")
	testkit.Equal(t, "a new generation of the same list", d.Status().Generation, generation)
}

// TestAskingForTheSame says what came of a SIGHUP, which is never nothing.
func TestAskingForTheSame(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open().watching()
	if d.count("nothing changed") > 0 {
		t.Errorf("said unasked:\n%s", d.log)
	}
	d.Now()
	d.wait("an answer", func() bool { return d.count(`msg="nothing changed" generation=`+d.Status().Generation) == 1 })
	d.write("a.txt", "")
	d.waitProblem("empty")
	d.wantCount("lists refused", 1)
	d.Now()
	d.wantCount("lists refused", 2) // the same again
}

// TestListThatSaysWhenItExpires: a list that is older than its own header lets it get has a remark, and serves on.
func TestListThatSaysWhenItExpires(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "# Expires: 4 days (update frequency)\nold.example\n", "b.txt": "always.example\n"})
	d.date("a.txt", 5*testDay)
	d.date("b.txt", 500*testDay)
	d.open()
	for _, now := range []time.Time{time.Now(), time.Now().Add(time.Hour)} {
		d.age(now)
		s := d.Status()
		if len(s.Problems) > 0 || !s.Ready || len(s.Remarks) != 1 || !strings.HasPrefix(s.Remarks[0], "list a: "+d.path("a.txt")+" is of ") ||
			!strings.HasSuffix(s.Remarks[0], ", and says of itself that it is to be fetched anew after 4d") || !d.listed("x@old.example") {
			t.Errorf("%+v", s)
		}
	}
	d.date("a.txt", 3*testDay)
	d.look(t.Context(), true)
	d.age(time.Now())
	if s := d.Status(); len(s.Remarks) > 0 {
		t.Errorf("fetched anew: %q", s.Remarks)
	}
}
