package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
)

// TestRestoredAsItWas takes a list away and puts it back: no generation is
// built, and the problem is over.
func TestRestoredAsItWas(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open().watching()
	generation := d.Status().Generation
	d.rename("a.txt", "kept")
	d.waitProblem("missing")
	d.rename("kept", "a.txt")
	d.waitWell()
	testkit.Equal(t, "a new generation of the same lists", d.Status().Generation, generation)
	d.wait("the end of the problem in the log", func() bool { return d.count("lists are in order again") == 1 })
	d.wantMetric("blockd_reload_last_attempt_success", "1")
}

// TestOptionalListMayNotVanish says that optional is about the first start: a
// list that had entries keeps them until it may be empty.
func TestOptionalListMayNotVanish(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "always.example\n"})
	d.settings.Lists[0].Optional = true
	d.open().watching()
	d.remove("a.txt")
	d.waitProblem("list a", "empty")
	d.serves("entries went with the file", "x@old.example")
}

func TestGlobThatMatchesNothing(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"})
	d.write("lists/1.txt", "glob.example\n")
	d.settings.Lists[0].Path = d.path("lists/*.txt")
	d.open().watching()
	d.remove("lists/1.txt")
	d.waitProblem("list a", "*.txt", "missing", "no file matches")
	d.cured("lists/2.txt", "new.example\n", "x@new.example")
}

func TestUnreadableFolderIsNoEmptyGlob(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	d := newDaemon(t, nil)
	d.write("lists/1.txt", "glob.example\n")
	d.must(os.Chmod(d.path("lists"), 0))
	defer os.Chmod(d.path("lists"), 0o755)
	if _, err := glob(d.path("lists/*.txt")); err == nil {
		t.Error("no error")
	}
}

// TestIndexCannotBeWritten takes the index's folder away, as a full disk would
// be: the old generation serves from memory and mapping.
func TestIndexCannotBeWritten(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open().watching()
	d.rename("index", "elsewhere")
	d.write("a.txt", "new.example\n")
	d.waitProblem("index")
	d.serves("the old generation does not serve", "x@old.example")
	d.wait("the failure counted", func() bool { return d.metric(`blockd_reloads_total{result="failed"}`) != "0" })
	d.mkdir("index")
	d.waitListed("x@new.example")
	d.waitWell()
}

func TestAnotherBuildIsUnderWay(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open().watching()
	unlock := d.lock()
	d.write("a.txt", "new.example\n")
	d.waitProblem("another build")
	d.wantCount("hint=", 1)
	unlock()
	d.waitListed("x@new.example")
	d.waitWell()
}

// lock holds the index's lock as another process at work does.
func (d *daemon) lock() (unlock func()) {
	d.t.Helper()
	f, err := os.OpenFile(d.settings.Path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	d.must(err)
	d.must(unix.Flock(int(f.Fd()), unix.LOCK_EX))
	return func() { f.Close() }
}

// TestCompiledElsewhere builds what the gate refuses, as `blockd compile
// --accept` does, and publishes it: the daemon takes it over.
func TestCompiledElsewhere(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "always.example\n"})
	d.settings.Lists[0].MaxAge = 30 * testDay
	d.open().watching()
	d.write("backup", "new.example\n")
	d.date("backup", 31*testDay)
	d.rename("backup", "a.txt")
	d.waitProblem("stale")
	draft, err := index.Build(t.Context(), d.settings.Path, d.sources(), index.Options{})
	d.must(err)
	odd := Compare(d.settings.Lists, d.Live(), draft.Report.Lists) // what the command tells, and asks about
	if len(odd) != 1 || !odd[0].Acceptable || !strings.Contains(odd[0].Err.Error(), "stale") {
		t.Errorf("Compare() = %v, want one that may be accepted", odd)
	}
	d.must(draft.Publish())
	d.waitUnlisted("x@old.example")
	d.wantCount("lists accepted", 1)
	d.waitWell()
	if d.Status().Generation != draft.Index().Generation() || !d.listed("x@always.example") {
		t.Error("it is not the compiled generation that serves")
	}
}

func (d *daemon) sources() []index.Source {
	sources, _ := expand(d.settings.Lists)
	return sources
}

// TestFileBeingWrittenIsNoProblem lets looks find a file that changes: they come
// again, and only one that never rests is told of.
func TestFileBeingWrittenIsNoProblem(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open()
	changed := problem{list: "a", err: &lists.FileError{Path: d.path("a.txt"), Class: lists.Changed, Err: lists.ErrChanged}}
	for i := 1; i <= maxUnfinished; i++ {
		next := d.conclude(refused, []problem{changed}, false, true)
		if problems := len(d.Status().Problems); next != probing || (problems > 0) != (i == maxUnfinished) {
			t.Errorf("look %d: next state %d, %d problems", i, next, problems)
		}
	}
	if next := d.conclude(unchanged, nil, false, true); next != resting || len(d.Status().Problems) > 0 {
		t.Error("not over when the file rests")
	}
}

func TestEndOfTheDaemonIsNoProblem(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open()
	d.write("a.txt", "new.example\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.look(ctx, false); !errors.Is(err, context.Canceled) || len(d.Status().Problems) > 0 {
		t.Errorf("look = %v, problems %q", err, d.Status().Problems)
	}
	if d.count("level=ERROR") > 0 {
		t.Errorf("log:\n%s", d.log)
	}
}

// TestFirstStart goes through what Open promises.
func TestFirstStart(t *testing.T) {
	both := map[string]string{"a.txt": "a.example\n", "b.txt": "b.example\n"}
	t.Run("unchanged lists are not built again", func(t *testing.T) {
		d := newDaemon(t, both).open()
		generation := d.Status().Generation
		if d.open(); d.Status().Generation != generation || d.count("found on disk") != 1 || !d.Status().Ready {
			t.Errorf("built again:\n%s", d.log)
		}
		d.wantMetric("blockd_reload_last_attempt_success", "1")
	})
	t.Run("changed lists are", func(t *testing.T) {
		d := newDaemon(t, both).open()
		d.write("a.txt", "new.example\n")
		if d.open(); !d.listed("x@new.example") {
			t.Error("an old generation serves")
		}
	})
	t.Run("damaged index is built anew", func(t *testing.T) {
		d := newDaemon(t, both).open()
		data, err := os.ReadFile(d.settings.Path)
		d.must(err)
		data[100]++
		d.must(os.WriteFile(d.settings.Path+".new", data, 0o600))
		d.must(os.Rename(d.settings.Path+".new", d.settings.Path))
		d.open()
		if !d.listed("x@a.example") || !d.Status().Ready || d.count("cannot be used") != 1 {
			t.Errorf("log:\n%s", d.log)
		}
	})
	t.Run("empty list is no problem when it never had entries", func(t *testing.T) {
		d := newDaemon(t, map[string]string{"a.txt": ""}).open()
		if s := d.Status(); !s.Ready || len(s.Problems) > 0 {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("refused list without an index: the others serve", func(t *testing.T) {
		d := newDaemon(t, both)
		d.remove("a.txt")
		d.open()
		if s := d.Status(); !s.Ready || s.Lacks() != "1 of 2 lists filter" || len(s.Problems) != 1 || !d.listed("x@b.example") {
			t.Errorf("status %+v", s)
		}
		d.wantMetric("blockd_reload_last_attempt_success", "0")
		testkit.Equal(t, fmt.Sprintf("log:\n%s", d.log), d.count(`serves="the other lists"`), 1)
		// The other lists live on while it lacks, and it comes when it is there.
		d.start()
		d.served("b.txt", "new.example\n", "x@new.example")
		if s := d.Status(); !s.Ready || s.Lacks() != "1 of 2 lists filter" || len(s.Problems) != 1 {
			t.Errorf("status %+v", s)
		}
		d.cured("a.txt", "a.example\n", "x@a.example")
		if s := d.Status(); !s.Ready || s.Lacks() != "" {
			t.Errorf("with all lists: %+v", s)
		}
	})
	t.Run("while one lacks, another may not go", func(t *testing.T) {
		d := newDaemon(t, both)
		d.remove("a.txt")
		d.open().watching()
		d.write("b.txt", "<html>") // which shows only in the build
		d.wait("both problems", func() bool { return len(d.Status().Problems) == 2 })
		d.write("a.txt", "a.example\n")
		d.waitProblem("list b", "html")
		d.serves("entries are gone", "x@b.example")
		d.cured("b.txt", "b.example\n", "x@a.example")
	})
	t.Run("an index of another file is not good", func(t *testing.T) {
		d := newDaemon(t, both).open()
		d.settings.Lists[0].Path = d.path("elsewhere.txt")
		d.open()
		if s := d.Status(); !s.Ready || s.Lacks() == "" || d.listed("x@a.example") {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("an index that lacks a list is not good", func(t *testing.T) {
		d := newDaemon(t, both)
		d.write("a.txt", "<html>")
		d.open()
		if d.open(); d.Status().Lacks() != "1 of 2 lists filter" || len(d.Status().Problems) != 1 {
			t.Errorf("status %+v", d.Status())
		}
	})
	t.Run("glob without a file: the others serve", func(t *testing.T) {
		d := newDaemon(t, both)
		d.settings.Lists[0].Path = d.path("none/*.txt")
		d.open()
		if s := d.Status(); !s.Ready || s.Lacks() != "1 of 2 lists filter" || len(s.Problems) != 1 || !d.listed("x@b.example") {
			t.Errorf("status %+v", s)
		}
		d.start()
		d.mkdir("none")
		d.cured("none/1.txt", "a.example\n", "x@a.example")
	})
	t.Run("optional list is missing", func(t *testing.T) {
		d := newDaemon(t, both)
		d.settings.Lists[0].Optional = true
		d.remove("a.txt")
		d.open()
		if s := d.Status(); !s.Ready || len(s.Problems) > 0 || !d.listed("x@b.example") {
			t.Errorf("status %+v", s)
		}
		generation := d.Status().Generation
		if d.open(); d.Status().Generation != generation {
			t.Error("built again")
		}
		d.start()
		d.served("a.txt", "a.example\n", "x@a.example")
	})
	t.Run("optional list is refused", func(t *testing.T) {
		d := newDaemon(t, both)
		d.settings.Lists[0].Optional = true
		d.write("a.txt", "<html>")
		d.open()
		for range 2 { // the second time from the index on disk
			if s := d.Status(); !s.Ready || len(s.Problems) != 1 || !d.listed("x@b.example") {
				t.Errorf("status %+v", s)
			}
			d.open()
		}
		d.start()
		d.served("b.txt", "new.example\n", "x@new.example")
	})
	t.Run("no lists at all", func(t *testing.T) {
		if d := newDaemon(t, nil).open(); !d.Status().Ready {
			t.Errorf("status %+v", d.Status())
		}
	})
	t.Run("nothing to serve is an error", func(t *testing.T) {
		d := newDaemon(t, both)
		d.remove("index")
		_, err := Open(t.Context(), d.settings, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		testkit.IsError(t, "Open", err, os.ErrNotExist)
	})
	t.Run("so is a locked index", func(t *testing.T) {
		d := newDaemon(t, both)
		defer d.lock()()
		_, err := Open(t.Context(), d.settings, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		testkit.IsError(t, "Open", err, index.ErrLocked)
	})
}

// The name of a list may hold what stands between a name and a fault in the text of an error.
func TestProblemOfABuildHasItsListAndFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent.txt")
	sources := []index.Source{{List: "news: daily", Path: path, Settings: lists.Settings{Format: "plain"}}}
	_, err := index.Build(t.Context(), filepath.Join(t.TempDir(), "x.bdx"), sources, index.Options{})
	all := buildProblems(err)
	if len(all) != 1 || all[0].file() != (file{"news: daily", path}) || all[0].class != lists.Missing {
		t.Errorf("buildProblems(%v) = %+v", err, all)
	}
}

// A line that is refused is told of with its file, line and class: in the log, in a counter and a
// gauge, and as a remark for /readyz.
func TestRefusedLinesAreTold(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "bad.example\n\nno entry\ncom\n", "b.txt": "good.example\n"})
	guard, err := lists.NewGuard(lists.DefaultGuard())
	d.must(err)
	d.settings.Lists[0].Settings.Guard = guard
	d.open().start()
	d.wantCount(`msg="line refused"`, 2)
	for _, words := range []string{
		`level=WARN msg="line refused" list=a file=` + d.path("a.txt") + ` line=3 class=syntax error="more than one word; write one entry a line" text="no entry"`,
		`level=WARN msg="line refused" list=a file=` + d.path("a.txt") + ` line=4 class=public-suffix error="a single label: everybody's names are below it" text=com`,
	} {
		testkit.Equal(t, fmt.Sprintf("no line %q in the log:\n%s", words, d.log), d.count(words), 1)
	}
	for _, class := range []string{"syntax", "public-suffix"} {
		d.wantMetric(`blockd_list_refused_lines_total{class="`+class+`",list="a"}`, "1")
		d.wantMetric(`blockd_list_lines_left_out{class="`+class+`",list="a"}`, "1")
	}
	want := []string{"list a: 2 lines are refused (1 public-suffix, 1 syntax), such as " + d.path("a.txt") + ":3: syntax: more than one word; write one entry a line"}
	if s := d.Status(); !s.Ready || len(s.Problems) > 0 || !slices.Equal(s.Remarks, want) {
		t.Errorf("status %+v, want the remark %q", s, want)
	}

	// Another list changes: what is known is not told again.
	d.served("b.txt", "good.example\nother.example\n", "x@other.example")
	d.wantCount(`msg="line refused"`, 2)
	if s := d.Status(); !slices.Equal(s.Remarks, want) {
		t.Errorf("remarks %q after another list's change", s.Remarks)
	}

	// So it is where the list itself changes elsewhere; a new fault is told, and counted once.
	d.served("a.txt", "bad.example\n\n\nno entry\nworse.example\na..test\n", "x@worse.example")
	d.wantCount(`msg="line refused"`, 3)
	if d.count("line=6 class=syntax") != 1 || d.count("more lines refused") != 0 {
		t.Errorf("log:\n%s", d.log)
	}
	d.wantMetric(`blockd_list_refused_lines_total{class="syntax",list="a"}`, "2")
	d.wantMetric(`blockd_list_lines_left_out{class="syntax",list="a"}`, "2")
	d.wantMetric(`blockd_list_lines_left_out{class="public-suffix",list="a"}`, "")

	d.served("a.txt", "bad.example\ncured.example\n", "x@cured.example")
	testkit.EqualSlices(t, "remarks: of sound lists", d.Status().Remarks, nil)
}

// Of many refused lines the first ten are told of, then their number. A daemon that finds the index
// on disk tells the same.
func TestManyRefusedLinesAreTenAndACount(t *testing.T) {
	var text strings.Builder
	text.WriteString("bad.example\n")
	for i := range 25 {
		fmt.Fprintf(&text, "no entry %d\n", i)
	}
	d := newDaemon(t, map[string]string{"a.txt": text.String()})
	for _, how := range []string{"built", "found on disk"} {
		d.open()
		testkit.Equal(t, fmt.Sprintf("not %s:\n%s", how, d.log), d.count("how="+quoted(how)), 1)
		if n := d.count(`msg="line refused"`); n != 10 {
			t.Errorf("%s: %d lines in the log, want 10:\n%s", how, n, d.log)
		}
		if d.count(`msg="more lines refused" list=a file=`+d.path("a.txt")+` refused=25 told=10 classes="25 syntax"`) != 1 {
			t.Errorf("%s: no count in the log:\n%s", how, d.log)
		}
		d.wantMetric(`blockd_list_refused_lines_total{class="syntax",list="a"}`, "25")
		if s := d.Status(); len(s.Remarks) != 1 || !strings.HasPrefix(s.Remarks[0], "list a: 25 lines are refused (25 syntax), such as ") {
			t.Errorf("%s: remarks %q", how, s.Remarks)
		}
	}
	d.start()
	d.served("a.txt", text.String()+"no entry 25\nnew.example\n", "x@new.example")
	d.wantCount("more lines refused", 2)
	testkit.Equal(t, "lines in the log", d.count(`msg="line refused"`), 10)
	d.wantMetric(`blockd_list_refused_lines_total{class="syntax",list="a"}`, "26")
}

func quoted(text string) string {
	if strings.Contains(text, " ") {
		return `"` + text + `"`
	}
	return text
}

// A refused line of a small change to a large index, which acts from memory first, is told alike.
func TestRefusedLineOfAnUpdateIsTold(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": strings.Repeat("# a comment\n", 6000) + "bad.example\n"})
	d.settings.updateFrom = 1
	d.open().start()
	d.served("a.txt", strings.Repeat("# a comment\n", 6000)+"bad.example\nnew.example\na..b\n", "x@new.example")
	d.wantCount("line=6003 class=syntax", 1)
	d.wait("the build behind the update", func() bool { return !d.Live().Updated() })
	d.wantCount(`msg="line refused"`, 1)
	d.wantMetric(`blockd_list_refused_lines_total{class="syntax",list="a"}`, "1")
}
