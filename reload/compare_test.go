package reload

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/records/correspondents"
)

// numbered is a list of n names, from the from-th on.
func numbered(from, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "n%d.example\n", from+i)
	}
	return b.String()
}

func TestCompare(t *testing.T) {
	l := List{Name: "a", Path: "a.txt", MaxShrink: 0.5, MaxGrow: 10}
	free := List{Name: "a", Path: "a.txt", AllowEmpty: true}
	fixed := List{Name: "a", Path: "a.txt", MaxShrink: 1, MaxGrow: 1}
	for _, tt := range []struct {
		rule    string
		l       List
		was, is int
		want    string
	}{
		{"half is left", l, 100, 50, ""},
		{"less than half is left", l, 100, 49, "shrunk: 49 entries are left of 100, less than max_shrink = 0.5 of them"},
		{"below 100 entries a share says nothing", l, 99, 1, ""},
		{"nothing is left", l, 1, 0, "empty: no entry is left of 1"},
		{"empty is said where shrunk holds too", l, 1000, 0, "empty: no entry is left of 1000"},
		{"empty as before", l, 0, 0, ""},
		{"ten times as many", l, 1000, 10_000, ""},
		{"more than ten times as many", l, 1000, 10_001, "grown: 10001 entries after 1000, more than max_grow = 10 times as many"},
		{"below 1,000 entries it may grow", l, 999, 1_000_000, ""},
		{"a new list", l, 0, 1_000_000, ""},
		{"no bounds", free, 100_000, 1, ""},
		{"no bound of growth", free, 1000, 1_000_000, ""},
		{"allowed to be empty", free, 1000, 0, ""},
		{"no entry may go", fixed, 1000, 999, "shrunk: 999 entries"},
		{"none may come", fixed, 1000, 1001, "grown: 1001 entries"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			// The entries stand in several files, as those of a glob do.
			rows := func(n int) []index.ListInfo {
				half := index.ListInfo{Source: index.Source{List: "a"}, Summary: lists.Summary{Entries: n / 2, Verdict: lists.Loaded}}
				rest, refused, other := half, half, half
				rest.Summary.Entries = n - n/2
				refused.Summary.Entries, refused.Summary.Verdict = 1<<30, lists.Refused // read in part, and not in the index
				other.Source.List, other.Summary.Entries = "b", 7
				return []index.ListInfo{half, rest, refused, other}
			}
			var errs []error
			for _, p := range compare([]List{tt.l, {Name: "b"}}, rows(tt.was), rows(tt.is)) {
				errs = append(errs, p.err)
			}
			got := strings.TrimPrefix(fmt.Sprint(errors.Join(errs...)), "list a: a.txt: ")
			if tt.want == "" && len(errs) > 0 || !strings.HasPrefix(got, tt.want) && tt.want != "" {
				t.Errorf("%d entries after %d: %s, want %q", tt.is, tt.was, got, tt.want)
			}
			for _, err := range errs {
				if !errors.As(err, new(*lists.FileError)) {
					t.Errorf("%v wraps no FileError", err)
				}
			}
		})
	}
}

// TestPoisonedLoads makes a good list bad in each way that the gate knows, holds
// that the old generation serves on and that rule and line are said, and then
// lets the load through by the override that the hint names.
func TestPoisonedLoads(t *testing.T) {
	const head = "old.example\n#? block x@old.example\n#? pass press@there.example\n"
	good := head + numbered(0, 1200)
	guarded := func(l *List, change func(*lists.GuardSettings)) {
		s := lists.DefaultGuard()
		s.Protected = append(s.Protected, "here.example")
		change(&s)
		guard := testkit.Value(lists.NewGuard(s))(t)
		l.Settings.Guard = guard
	}
	const providers = "gmail.com\noutlook.com\nyahoo.com\nqq.com\nweb.de\nfree.fr\n"
	tests := []struct {
		name   string
		text   string
		words  []string                                  // of the problem
		hint   string                                    // a part of it
		loose  func(l *List, guard *lists.GuardSettings) // what the operator changes; nil: the list
		listed string                                    // by then
	}{
		{"providers slipped in", good + providers,
			[]string{"list a: ", "a.txt: protected: entries that cover a protected domain: 6", "max_protected = 5", "the first is line 1204: gmail.com"}, "force",
			func(_ *List, g *lists.GuardSettings) { g.Force = strings.Fields(providers) }, "x@gmail.com"},
		{"the server's own domain, where none may be lost", good + "example\nhere.example\n",
			[]string{"protected: entries that cover a protected domain: 1", "max_protected = 0", "line 1205: here.example"}, "max_protected",
			func(_ *List, g *lists.GuardSettings) { g.Force = []string{"here.example"} }, ""},
		{"cut off", head + numbered(0, 500),
			[]string{"list a: ", "a.txt: shrunk: 501 entries are left of 1201, less than max_shrink = 0.5"}, "compile --accept",
			func(l *List, _ *lists.GuardSettings) { l.MaxShrink = 0.1 }, "x@old.example"},
		{"another list in its place", head + numbered(0, 12_020),
			[]string{"list a: ", "a.txt: grown: 12021 entries after 1201, more than max_grow = 10"}, "max_grow",
			func(l *List, _ *lists.GuardSettings) { l.MaxGrow = 11 }, "x@n12000.example"},
		{"another format in its place", good + strings.Repeat("a sentence that is no entry\n", 500),
			[]string{"list a: ", "a.txt: bad-ratio: 500 of 1701 lines are refused", "max_bad_ratio = 0.25", "the first is line 1204: syntax"}, "blockd lint",
			func(_ *List, g *lists.GuardSettings) { g.MaxBadRatio = 0.5 }, "x@old.example"},
		{"an entry that must stay went", strings.TrimPrefix(good, "old.example\n"),
			[]string{"list a: ", "a.txt:1: self-test: <x@old.example> shall be blocked, and no line does"}, "test", nil, "x@n7.example"},
		{"emptied", "# nobody\n", []string{"list a: ", "a.txt: empty: no entry is left of 1201"}, "allow_empty",
			func(l *List, _ *lists.GuardSettings) { l.AllowEmpty = true }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, map[string]string{"a.txt": good, "b.txt": "always.example\n"})
			a := &d.settings.Lists[0]
			a.MaxShrink, a.MaxGrow = 0.5, 10
			strict := func(s *lists.GuardSettings) {
				if strings.Contains(tt.name, "own domain") {
					s.MaxProtected = 0
				}
			}
			guarded(a, strict)
			d.open()
			stop := d.start()
			d.looks(1)
			if len(d.Status().Problems) > 0 || !d.listed("x@old.example") {
				t.Fatalf("the good list does not serve: %+v", d.Status())
			}
			before := d.Status().Generation
			d.write("a.txt", tt.text)
			d.waitProblem(tt.words...)
			d.looks(2)
			after := d.Status()
			if after.Generation != before || !after.Ready || !d.listed("x@old.example") || !d.listed("x@always.example") || d.listed("x@gmail.com") {
				t.Errorf("it is not the generation before that serves: %+v", after)
			}
			if d.count("level=ERROR") != 1 || d.count("hint=") != 1 || !strings.Contains(d.log.String(), tt.hint) {
				t.Errorf("want one line in the log, with a hint about %s:\n%s", tt.hint, d.log)
			}
			t.Log(after.Problems[0])
			d.wantMetric("blockd_reload_last_attempt_success", "0")

			stop()
			if tt.loose == nil {
				d.write("a.txt", tt.text[strings.Index(tt.text, "#? pass"):]) // without its first test
			} else {
				guarded(a, func(s *lists.GuardSettings) {
					strict(s)
					tt.loose(a, s)
				})
			}
			d.open() // the change of configuration takes a restart
			if s := d.Status(); len(s.Problems) > 0 || !s.Ready || s.Generation == before {
				t.Errorf("not let through: %+v", s)
			}
			if tt.listed != "" && !d.listed(tt.listed) {
				t.Errorf("%s is not listed", tt.listed)
			}
		})
	}
}

// TestGuardOfAnotherConfiguration starts with an index that was built under
// another guard: it serves until the lists are built anew, and on if that is
// refused.
func TestGuardOfAnotherConfiguration(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "bulk.example\nhere.example\nmx.here.example\n"}).open()
	before := d.Status().Generation
	d.serves("without a guard it is an entry", "x@here.example")
	guard := func(s lists.GuardSettings) {
		g, err := lists.NewGuard(s)
		d.must(err)
		d.settings.Lists[0].Settings.Guard = g
	}

	guard(lists.GuardSettings{Protected: []string{"here.example", "mx.here.example"}, MaxProtected: 1, MaxBadRatio: 1})
	d.open()
	if s := d.Status(); s.Generation != before || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "protected: entries that cover a protected domain: 2") || !s.Ready {
		t.Errorf("want the old generation and a problem: %+v", s)
	}

	guard(lists.GuardSettings{Protected: []string{"here.example"}, MaxProtected: 1, MaxBadRatio: 1})
	d.open()
	s := d.Status()
	if s.Generation == before || len(s.Problems) > 0 || d.listed("x@here.example") || !d.listed("x@mx.here.example") {
		t.Errorf("the entry that is protected now serves on: %+v", s)
	}

	guard(lists.GuardSettings{Protected: []string{"HERE.example"}, MaxProtected: 3, MaxBadRatio: 0.5})
	if d.open(); d.Status().Generation != s.Generation {
		t.Error("a guard that lets the same pass makes a new generation")
	}
}

// TestFirstStartWithAPoisonedList has no generation to fall back on: the rest is
// served, and the list comes in when it is in order.
func TestFirstStartWithAPoisonedList(t *testing.T) {
	for name, bad := range map[string]string{
		"self-test": "bulk.example\n#? pass x@bulk.example\n",
		"bad-ratio": numbered(0, 500) + strings.Repeat("no entry\n", 500),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, map[string]string{"a.txt": bad, "b.txt": "always.example\n"})
			guard, err := lists.NewGuard(lists.DefaultGuard())
			d.must(err)
			d.settings.Lists[0].Settings.Guard = guard
			d.settings.Lists[0].MaxShrink = 1
			d.open()
			d.start()
			d.waitProblem("list a: ", "a.txt", name)
			if s := d.Status(); !s.Ready || s.Lacks() != "1 of 2 lists filter" || d.listed("x@bulk.example") || d.listed("x@n1.example") || !d.listed("x@always.example") {
				t.Errorf("want all but the poisoned list: %+v", s)
			}
			d.wantMetric(`blockd_list_entries{list="a"}`, "0")
			d.cured("a.txt", "bulk.example\n#? block x@bulk.example\n", "x@bulk.example")
			if s := d.Status(); !s.Ready || s.Lacks() != "" {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// TestGuessedFormatMayNotTurn: what was an exception in one format is a refusal
// in another.
func TestGuessedFormatMayNotTurn(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "bulk.example\n"})
	d.settings.Lists[0].Settings.Format = ""
	d.open()
	stop := d.start()
	d.looks(1)
	d.write("a.txt", "# nothing but comments has no format\n")
	d.waitProblem("empty")
	d.write("a.txt", "0.0.0.0 bulk.example\n0.0.0.0 shop.example\n")
	d.waitProblem("list a: ", "a.txt: format: was plain, and looks like hosts now; declare its format")
	d.cured("a.txt", "bulk.example\nnews.example\n", "x@news.example")
	stop()
	d.settings.Lists[0].Settings.Format = "hosts"
	d.write("a.txt", "0.0.0.0 bulk.example\n0.0.0.0 shop.example\n")
	d.open()
	d.serves("a declared format is refused", "x@shop.example")
}

// knowing returns a set of correspondents.
func knowing(t *testing.T, recipients ...string) *correspondents.Set {
	t.Helper()
	set, _, err := correspondents.Open(correspondents.Settings{Path: t.TempDir() + "/set", Keep: 365 * 24 * time.Hour})
	testkit.Must(t, err)
	t.Cleanup(set.Close)
	sender, _ := addr.Parse("anna@here.example")
	for _, text := range recipients {
		recipient, err := addr.Parse(text)
		if err != nil || !set.Learn(sender, recipient, time.Now()) {
			t.Fatalf("%s is not learned", text)
		}
	}
	return set
}

// TestCorrespondentsSpeakAgainstALoad: entries that would refuse one of them are held back, by a build and by an update in
// memory; the others act.
func TestCorrespondentsSpeakAgainstALoad(t *testing.T) {
	for _, from := range []uint64{0, 1} { // keys from which on a change is an update in memory
		t.Run(fmt.Sprint("updates from ", from), func(t *testing.T) {
			d := newDaemon(t, map[string]string{"a.txt": "old.example\nserved@there.example\n"})
			d.settings.Blocks, d.settings.updateFrom = blocks, from
			d.settings.Correspondents = knowing(t, "bob@there.example", "served@there.example", "eve@mail.far.example", "dora@free.example", "wrote@lately.example")
			d.settings.Lists[0].Settings.Patterns = true
			d.settings.Recent = NewRecent(100)
			wrote, _ := addr.Parse("wrote@lately.example")
			d.settings.Recent.Add(wrote, netip.MustParseAddr("198.51.100.7"))
			d.open()
			if !d.listed("served@there.example") && d.Status().Held["a"] != 1 {
				t.Fatal("the first load is not judged")
			}
			d.write("a.txt", "old.example\nserved@there.example\nnew.example\nbob@there.example\ncarl@there.example\nfar.example\neve@\n=far.example\n"+
				"!dora@free.example\ndora@free.example\n198.51.100.0/24\n*wrot*@*\nstranger@lately.example\n")
			d.look(t.Context(), true)
			if from > 0 && d.Status().Held["a"] != 6+1 {
				t.Errorf("an update holds %d", d.Status().Held["a"])
			}
			d.look(t.Context(), true) // builds what memory has, if it was an update
			names := d.heldNames()
			for _, want := range []string{"a:bob@there.example:", "a:far.example:", "a:eve@:", "a:198.51.100.0/24:", "a:*wrot*@*:"} {
				testkit.Has(t, names, want)
			}
			if d.listed("bob@there.example") || d.listed("eve@mail.far.example") || !d.listed("carl@there.example") || !d.listed("a@new.example") || !d.listed("stranger@lately.example") {
				t.Errorf("held %s: wrong answers", names)
			}
			if remarks := strings.Join(d.Status().Remarks, "\n"); !strings.Contains(remarks, "correspondents, to whom users of this server write") || len(d.Status().Problems) > 0 {
				t.Errorf("remarks %q, problems %q", remarks, d.Status().Problems)
			}
			testkit.Has(t, d.log.String(), "class=correspondents")
		})
	}
}

// TestManyEntriesAgainstCorrespondents: a list that is made of the people one writes to is refused, and a person's own list
// is not judged.
func TestManyEntriesAgainstCorrespondents(t *testing.T) {
	var all []string
	for i := range mostHeldForCorrespondents + 1 {
		all = append(all, fmt.Sprintf("u%d@d%d.example", i, i))
	}
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "old.example\n"})
	d.settings.Blocks, d.settings.Correspondents = blocks, knowing(t, all...)
	d.settings.Lists[1].Own = true
	d.open()
	d.write("a.txt", "old.example\nnew.example\n"+strings.Join(all, "\n")+"\n")
	d.look(t.Context(), true)
	problems := d.Status().Refusals
	if len(problems) != 1 || problems[0].Class != "correspondents" || d.listed("x@new.example") {
		t.Errorf("problems %v", problems)
	}
	d.write("a.txt", "old.example\n")
	d.write("b.txt", "old.example\n"+all[0]+"\n")
	d.look(t.Context(), true)
	if !d.listed(all[0]) || d.Status().Held["b"] != 0 {
		t.Error("a person's own entry does not act")
	}
}

// processor is the time that this process has had of a processor: what other programs of the machine do is not in it.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	testkit.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkNamed walks over a new list of a million addresses, of whom one in ten thousand is a correspondent, with nearly a million
// correspondents: what a load costs for their sake. cpu-ns/entry is the figure of docs/correspondents.md.
func BenchmarkNamed(b *testing.B) {
	const entries, known = 1_000_000, 1_000_000
	path := b.TempDir() + "/set"
	set, _, err := correspondents.Open(correspondents.Settings{Path: path, Keep: 365 * 24 * time.Hour})
	testkit.Must(b, err)
	defer set.Close()
	sender, _ := addr.Parse("anna@here.example")
	learn := func(text string) {
		recipient := testkit.Value(addr.Parse(text))(b)
		set.Learn(sender, recipient, time.Now())
	}
	for i := range known {
		learn(fmt.Sprintf("user%d@d%d.example", i, i/5))
	}
	var list strings.Builder
	for i := range entries {
		if i%10_000 == 0 {
			fmt.Fprintf(&list, "user%d@d%d.example\n", i/10, i/50)
			continue
		}
		fmt.Fprintf(&list, "offer%d@mail%d.bulk%d.example\n", i, i%97, i/11)
	}
	ix := indexes.Build(b, indexes.Source(b, "bad", list.String()))
	testkit.Must(b, set.Save())
	info := testkit.Value(os.Stat(path))(b)
	b.ReportAllocs()
	found, spent := 0, processor(b)
	for b.Loop() {
		found = 0
		for _, err := range ix.Named(b.Context(), nil, set.Known) {
			testkit.Must(b, err)
			found++
		}
	}
	b.ReportMetric(float64(processor(b)-spent)/float64(b.N)/entries, "cpu-ns/entry")
	b.ReportMetric(float64(info.Size())/1e6, "MB-file")
	b.ReportMetric(float64(set.Len()), "known")
	if found < entries/10_000*9/10 {
		b.Errorf("%d found", found)
	}
}

// TestTheLastLineCanBeTakenOut: what people take out of a short list does not act any more, as soon as its file
// rests. A file that has gone or is torn, and a long list, stay as they were.
func TestTheLastLineCanBeTakenOut(t *testing.T) {
	short := "old.example\n" + numbered(0, 98)
	for _, tt := range []struct {
		rule    string
		before  string
		change  func(*daemon)
		problem string // "": the removal acts
	}{
		{"the only line", "old.example\n", func(d *daemon) { d.write("lists/1.txt", "") }, ""},
		{"but a comment", "old.example\n", func(d *daemon) { d.write("lists/1.txt", "# old.example\n\n") }, ""},
		{"an exception", "!old.example\n", func(d *daemon) { d.write("lists/1.txt", "") }, ""},
		{"99 lines", short, func(d *daemon) { d.write("lists/1.txt", "") }, ""},
		{"100 lines", short + "more.example\n", func(d *daemon) { d.write("lists/1.txt", "") }, "list a: %s: empty: no entry is left of 100"},
		{"of one file of two", short, func(d *daemon) { d.write("lists/2.txt", "") }, ""},
		{"a file that has gone", "old.example\n", func(d *daemon) { d.write("lists/2.txt", ""); d.remove("lists/1.txt") }, "list a: %s: empty: no entry is left of 1"},
		{"a torn file", "old.example\n", func(d *daemon) { d.write("lists/1.txt", packed(d.t, numbered(0, 50))[:40]) }, "list a: "},
	} {
		for _, from := range []uint64{0, 1} { // keys from which on a change is an update in memory
			t.Run(fmt.Sprint(tt.rule, "/updates from ", from), func(t *testing.T) {
				d := newDaemon(t, map[string]string{"a.txt": "", "b.txt": "always.example\n"})
				d.write("lists/1.txt", tt.before)
				d.settings.Lists[0].Path, d.settings.updateFrom = d.path("lists/*.txt"), from
				d.settings.Lists[0].MaxShrink, d.settings.Quiet = 0.5, time.Second
				d.open()
				tt.change(d)
				d.write("b.txt", "always.example\nnext.example\n")
				d.look(t.Context(), true)
				if !strings.Contains(tt.rule, "of two") {
					d.serves("it may still be written", "x@old.example")
				}
				for _, name := range []string{"lists/1.txt", "lists/2.txt"} {
					if _, err := os.Stat(d.path(name)); err == nil {
						d.old(name)
					}
				}
				d.look(t.Context(), true)
				problems := strings.Join(d.Status().Problems, "\n")
				if !strings.Contains(tt.rule, "has gone") {
					d.serves("the other list acts", "x@next.example")
				}
				if tt.problem == "" {
					testkit.Equal(t, "problems", problems, "")
					if d.listed("x@old.example") == !strings.Contains(tt.rule, "of two") {
						t.Errorf("it does not act; log:\n%s", d.log)
					}
					return
				}
				d.serves("it is to stay", "x@old.example")
				if want := strings.ReplaceAll(tt.problem, "%s", d.settings.Lists[0].Path); !strings.HasPrefix(problems, want) {
					t.Errorf("problems %q, want %q", problems, want)
				}
				for i, r := range d.Status().Refusals {
					if want := r.Text + "; blockd compile --accept a takes it all the same"; (d.Status().Told()[i] == want) != acceptable(r.Class) {
						t.Errorf("told %q", d.Status().Told())
					}
				}
			})
		}
	}
}

// TestAFileThatIsWritten is empty for a moment, and none of its entries is gone for one. Nobody is told of it either.
func TestAFileThatIsWritten(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n"}).open().watching()
	for i := range 3 {
		d.write("a.txt", "")
		d.looks(1)
		d.serves("while it is written", "x@old.example")
		d.served("a.txt", fmt.Sprintf("old.example\nnew%d.example\n", i), fmt.Sprintf("x@new%d.example", i))
	}
	d.write("a.txt", "")
	d.waitUnlisted("x@old.example")
	d.waitWell()
}

// TestListsOfASignedSequence: what is not in them any more is gone, and what an operator has chosen is taken as it
// is; anything else is judged as ever.
func TestListsOfASignedSequence(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		chosen  bool
		entries int
		acts    bool
	}{
		{"a removal", false, 3, true},
		{"all is gone", false, 0, true},
		{"a new sequence of ten times as much", false, 12_000, false},
		{"what was chosen", true, 12_000, true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			d := newDaemon(t, map[string]string{"a.txt": numbered(0, 1000), "b.txt": "always.example\n"})
			a, chosen := &d.settings.Lists[0], false
			a.MaxShrink, a.MaxGrow, a.Signed = 0.5, 10, func() bool { return chosen }
			d.open()
			old := d.Live()
			d.write("a.txt", numbered(0, tt.entries))
			if tt.chosen {
				d.look(t.Context(), true)
				d.serves("before it is chosen", "!x@n1001.example")
				chosen = true // and no file changes
			}
			d.look(t.Context(), false)
			d.serves("all that is signed", map[bool]string{true: "!", false: ""}[tt.acts && tt.entries < 1000]+"x@n999.example",
				map[bool]string{true: "", false: "!"}[tt.acts && tt.entries > 1000]+"x@n1001.example")
			if got := len(d.Status().Problems) == 0; got != tt.acts {
				t.Errorf("problems %q", d.Status().Problems)
			}
			draft := testkit.Value(index.Build(t.Context(), filepath.Join(t.TempDir(), "draft.bdx"), d.sources(), index.Options{}))(t)
			defer draft.Discard()
			if odd := Compare(d.settings.Lists, old, draft.Report.Lists); (len(odd) == 0) != tt.acts {
				t.Errorf("commands find %v", odd)
			}
		})
	}
}

// TestAFileThatComes to a list and is bad, or refused by the gate, is left out; the rest of the list and other lists
// act.
func TestAFileThatComes(t *testing.T) {
	for rule, text := range map[string]string{"html": "<!DOCTYPE html><html></html>\n", "grown": numbered(5000, 12_000)} {
		t.Run(rule, func(t *testing.T) {
			d := newDaemon(t, map[string]string{"a.txt": "", "b.txt": "b0.example\n"})
			a := &d.settings.Lists[0]
			a.Path, a.MaxGrow = d.path("lists/*.txt"), 10
			d.write("lists/1.txt", numbered(0, 1000))
			d.open()
			d.write("lists/2.txt", text)
			for i := range 2 {
				d.write("b.txt", fmt.Sprintf("b%d.example\n", i))
				d.look(t.Context(), true)
				d.serves("with a bad file", "x@n7.example", "!x@n6000.example", fmt.Sprintf("x@b%d.example", i))
			}
			if p := d.Status().Problems; len(p) == 0 || !strings.Contains(p[0], rule) {
				t.Errorf("problems %q", p)
			}
			d.write("lists/2.txt", "more.example\n")
			d.look(t.Context(), true)
			d.serves("in order", "x@more.example", "x@n7.example")
			if p := d.Status().Problems; len(p) > 0 {
				t.Errorf("problems %q", p)
			}
		})
	}
}
