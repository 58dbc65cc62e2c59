package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
)

func guard(t testing.TB) *lists.Guard {
	t.Helper()
	return testkit.Value(lists.NewGuard(lists.DefaultGuard()))(t)
}

func open(t testing.TB, s Settings) *Set {
	t.Helper()
	if s.Folder == "" {
		s.Folder = filepath.Join(t.TempDir(), "live")
	}
	set := testkit.Value(Open(s))(t)
	t.Cleanup(func() { set.Close() })
	return set
}

func apply(t testing.TB, s *Set, changes ...Change) []Outcome {
	t.Helper()
	return testkit.Value(s.Apply(changes...))(t)
}

// mustFold writes the list of entries for a build.
func mustFold(t testing.TB, s *Set) {
	t.Helper()
	testkit.Value(s.Fold(t.Context()))(t)
}

// texts are the entries of a set, the newest first.
func texts(s *Set) string {
	var all []string
	for e := range s.All() {
		all = append(all, e.Item.Action.String()+" "+e.Text)
	}
	return strings.Join(all, ", ")
}

func TestWhatMayBeAdded(t *testing.T) {
	set := open(t, Settings{Guard: guard(t)})
	tests := []struct{ name, entry, want string }{
		{"an address", "Spam@X.Example", "spam@x.example"},
		{"a name with all below", "Bulk.Example", "bulk.example"},
		{"that name alone", "@bulk.example", "=bulk.example"},
		{"the names below it", "*.bulk.example", ".bulk.example"},
		{"a local-part", "offers@", "offers@"},
		{"a client address", "192.0.2.1", "192.0.2.1"},
		{"a network, its host bits masked", "192.0.2.77/24", "192.0.2.0/24"},
		{"an IPv6 network", "2001:DB8::/48", "2001:db8::/48"},
		{"a name in another script", "bücher.example", "xn--bcher-kva.example"},
		{"an address within a mailbox", "Win <a@b.example>", "a@b.example"},
		{"a local-part with a mark", `"a#b"@x.example`, `"a#b"@x.example`},
		{"one mailbox of a protected provider", "spammer@gmail.com", "spammer@gmail.com"},
		{"a protected provider as a whole", "gmail.com", `refused by the gate: "gmail.com": protected: covers the protected domain gmail.com as a whole`},
		{"a public suffix", "co.uk", `refused by the gate: "co.uk": public-suffix`},
		{"what stands above a provider", "com", `refused by the gate: "com": public-suffix`},
		{"everybody", "*", `no live entry: "*": too-broad: this covers every sender`},
		{"a quarter of the internet", "0.0.0.0/2", `no live entry: "0.0.0.0/2": too-broad`},
		{"a glob", "promo*@bulk.example", `no live entry: "promo*@bulk.example": unsupported`},
		{"a regular expression", "/^promo/", `no live entry: "/^promo/": unsupported`},
		{"an exception by its mark", "!x@y.example", `want the action "allow"`},
		{"a comment", "# x@y.example", "want an entry and nothing else"},
		{"an entry and a comment", "x@y.example # why", "want an entry and nothing else"},
		{"two entries", "192.0.2.1 - 192.0.2.5", "entries; want one"},
		{"two lines", "x@y.example\nz@y.example", "no live entry"},
		{"nothing", " ", "want an entry and nothing else"},
		{"the null sender", "<>", "null-sender"},
		{"an invisible character", "x\u200b@y.example", "invisible"},
		{"a text without end", strings.Repeat("a", 5000), "too-long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			outcomes, err := set.Apply(Change{Entry: tt.entry})
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = outcomes[0].Entry.Text
			}
			if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
				t.Errorf("Apply(%q) = %s, want %s", tt.entry, got, tt.want)
			}
			if err != nil && errors.Is(err, ErrGuarded) == errors.Is(err, ErrInvalid) {
				t.Errorf("Apply(%q): %v is not one of ErrGuarded and ErrInvalid", tt.entry, err)
			}
		})
	}
}

func TestForceAddsWhatTheGateProtects(t *testing.T) {
	set := open(t, Settings{Guard: guard(t)})
	e := apply(t, set, Change{Entry: "gmail.com", Force: true})[0].Entry
	testkit.Got(e.Forced, e.Text)(t, "forced entry", true, "gmail.com")
	if e := apply(t, set, Change{Entry: "x@gmail.com", Force: true})[0].Entry; e.Forced {
		t.Error("an entry that the gate lets pass is called forced")
	}
	if e := apply(t, set, Change{Entry: "co.uk", Action: lists.Allow})[0].Entry; e.Forced {
		t.Error("an allow entry is called forced")
	}
}

func TestOnlyOneLineOfText(t *testing.T) {
	set := open(t, Settings{})
	for _, c := range []Change{
		{Entry: "x@y.example", Why: "a\nb"},
		{Entry: "x@y.example", Why: strings.Repeat("a", MaxWhy+1)},
		{Entry: "x@y.example", Why: "\xff"},
		{Entry: "x@y.example", Author: "a\x1b[31m"},
		{Entry: "x@y.example", Author: strings.Repeat("a", MaxAuthor+1)},
		{Entry: "x@y.example", Action: lists.Discard},
		{Entry: "x@y.example", Expires: time.Now().Add(-time.Second)},
		{Entry: "x@y.example", Expires: time.Now().Add(2 * mostLife)},
	} {
		testkit.Fails(set.Apply(c))(t, c, ErrInvalid)
	}
	testkit.Equal(t, "entries", set.Len(), 0)
}

func TestChangesAreUndoneByWhatWasBefore(t *testing.T) {
	set := open(t, Settings{})
	add := func(action lists.Action, why string) Outcome {
		return apply(t, set, Change{Entry: "x.example", Action: action, Why: why})[0]
	}
	if o := add(lists.Block, "first"); o.Was != nil || !o.Changed() {
		t.Errorf("first: %+v", o)
	}
	if o := add(lists.Block, "first"); o.Changed() || o.Was == nil {
		t.Errorf("the same again: %+v", o)
	}
	if o := add(lists.Allow, "second"); o.Was == nil || o.Was.Why != "first" || o.Entry.Item.Action != lists.Allow {
		t.Errorf("another action: %+v", o)
	}
	testkit.Equal(t, "entries", texts(set), "allow x.example")
	if o := apply(t, set, Change{Entry: "=X.example", Remove: true})[0]; o.Changed() {
		t.Errorf("another scope was removed: %+v", o)
	}
	if o := apply(t, set, Change{Entry: "X.EXAMPLE", Remove: true})[0]; o.Entry != nil || o.Was == nil || o.Was.Why != "second" {
		t.Errorf("removal: %+v", o)
	}
	testkit.Equal(t, "removal of nothing", apply(t, set, Change{Entry: "x.example", Remove: true})[0].Changed(), false)
}

func TestAllOfABatchOrNothing(t *testing.T) {
	set := open(t, Settings{Guard: guard(t)})
	testkit.Fails(set.Apply(Change{Entry: "a.example"}, Change{Entry: "gmail.com"}))(t, "error", ErrGuarded)
	testkit.Equal(t, "entries", texts(set), "")
	apply(t, set, Change{Entry: "a.example"}, Change{Entry: "b.example"}, Change{Entry: "a.example", Remove: true}, Change{Entry: "b.example", Why: "last"})
	got := slices.Collect(set.All())
	testkit.Got(len(got), testkit.At(got, 0).Why)(t, fmt.Sprintf("entries: %s", texts(set)), 1, "last")
}

// What was acknowledged is there after a restart, with everything that was said of it.
func TestEntriesOutliveTheProcess(t *testing.T) {
	s := Settings{Folder: filepath.Join(t.TempDir(), "a", "live"), Guard: guard(t)}
	set := open(t, s)
	until := time.Now().Add(time.Hour)
	apply(t, set, Change{Entry: "a@b.example", Why: `"so" <—>`, Author: "jo", Expires: until}, Change{Entry: "gmail.com", Force: true},
		Change{Entry: "192.0.2.0/24", Action: lists.Allow}, Change{Entry: "gone.example"})
	apply(t, set, Change{Entry: "gone.example", Remove: true, Author: "jo"})
	want := slices.Collect(set.All())
	if _, err := Open(s); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second process: %v, want ErrLocked", err)
	}
	seen := testkit.Value(Read(s.Folder))(t)
	testkit.Fails(seen.Apply(Change{Entry: "x.example"}))(t, "what was read could be written", ErrUnwritable)
	set.Close()
	again := open(t, s)
	for _, got := range [][]*Entry{slices.Collect(seen.All()), slices.Collect(again.All())} {
		testkit.MustEqual(t, "entries", len(got), len(want))
		for i := range want {
			testkit.Equal(t, fmt.Sprint("entry ", i), *got[i], *want[i])
		}
	}
	testkit.Equal(t, "number", apply(t, again, Change{Entry: "new.example"})[0].Entry.Number, 6)
}

func TestFolderThatIsNotThere(t *testing.T) {
	set := testkit.Value(Read(filepath.Join(t.TempDir(), "none")))(t)
	testkit.Equal(t, "Read", set.Len(), 0)
	set.Close()
}

// The journal stays in proportion to what it holds, whatever is done to it.
func TestJournalIsBounded(t *testing.T) {
	s := Settings{Folder: filepath.Join(t.TempDir(), "live"), compactFrom: 20}
	set := open(t, s)
	apply(t, set, Change{Entry: "stays@x.example"})
	for i := range 500 {
		apply(t, set, Change{Entry: "comes@x.example", Why: strings.Repeat("w", i%7)})
		apply(t, set, Change{Entry: "comes@x.example", Remove: true})
		testkit.Must(t, set.Tidy())
		if info, err := os.Stat(journalPath(s.Folder)); err != nil || info.Size() > 8000 {
			t.Fatalf("journal after %d changes: %v, %v", 2*i, info.Size(), err)
		}
	}
	last := set.last
	set.Close()
	again := open(t, s)
	got := texts(again)
	testkit.Got(got, again.last)(t, "entries and last number", "block stays@x.example", last)
}

func TestAnEntryEndsAtItsTime(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "live")
	ix := indexes.Build(t, indexes.Source(t, "other", "other.example"))
	synctest.Test(t, func(t *testing.T) {
		set := open(t, Settings{Folder: folder})
		set.Served(ix)
		apply(t, set, Change{Entry: "x@y.example", Expires: time.Now().Add(time.Hour)}, Change{Entry: "stays@y.example"})
		for _, step := range []struct {
			wait time.Duration
			want string
		}{{time.Hour - time.Second, "block x@y.example"}, {time.Second, ""}, {time.Hour, ""}} {
			time.Sleep(step.wait)
			testkit.Equal(t, fmt.Sprintf("%v later", step.wait), covering(t, set, ix, "x@y.example"), step.want)
		}
		testkit.Equal(t, "entries held and shown", [...]int{set.Len(), len(slices.Collect(set.All()))}, [...]int{2, 1})
		testkit.Must(t, set.Tidy())
		testkit.Equal(t, "entries held after Tidy", set.Len(), 1)
	})
}

// Run writes the list of entries when an index lacks a thousand of them, and takes
// out those whose time is over.
func TestRun(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "live")
	ix := indexes.Build(t, indexes.Source(t, "other", "other.example"))
	synctest.Test(t, func(t *testing.T) {
		set := open(t, Settings{Folder: folder})
		set.Served(ix)
		stop := testkit.Running(t, func(ctx context.Context) { testkit.Should(t, set.Run(ctx, slog.New(slog.DiscardHandler))) })
		there := func() bool {
			synctest.Wait()
			_, err := os.Stat(listPath(folder))
			return err == nil
		}
		time.Sleep(2 * tidyEvery)
		var changes []Change
		for i := range foldFrom - 1 {
			changes = append(changes, Change{Entry: fmt.Sprintf("x%d@y.example", i), Expires: time.Now().Add(time.Hour)})
		}
		apply(t, set, changes...)
		testkit.Equal(t, "the list is written for less than a thousand", there(), false)
		apply(t, set, Change{Entry: "one.more.example"})
		testkit.Equal(t, "the list is written for a thousand", there(), true)
		time.Sleep(time.Hour + tidyEvery)
		synctest.Wait()
		testkit.Equal(t, "entries that are held when all but one have ended", set.Len(), 1)
		stop()
	})
}

func TestHowLongAnEntryLives(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30d": 30 * 24 * time.Hour, "12h": 12 * time.Hour, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "36500d": 36500 * 24 * time.Hour,
		"": 0, "0": 0, "0d": 0, "-5h": 0, "2d-1h": 0, "1d+1h": 0, "+5h": 0, "36501d": 0, "36500d1h": 0, "99999999d": 0, "876001h": 0, "9223372036854775807ns": 0,
		"1.5d": 0, " 30d": 0, "30 d": 0, "1d1d": 0, "d": 0, "30": 0, "٣d": 0, "NaNh": 0,
	} {
		got, err := ParseLife(text)
		if got != want || (err == nil) != (want > 0) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseLife(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
}

// What has expired was not removed by a user, also for a question in between.
func TestExpiredIsNotRemoved(t *testing.T) {
	set := open(t, Settings{Folder: filepath.Join(t.TempDir(), "live")})
	reg := prometheus.NewRegistry()
	set.Register(reg)
	now := time.Now()
	end := now.Add(time.Hour)
	apply(t, set, Change{Entry: "a.example", Expires: end}, Change{Entry: "b.example", Expires: end}, Change{Entry: "c.example"})
	apply(t, set, Change{Entry: "c.example", Remove: true})
	testkit.Must(t, set.sweep(end))
	want := map[string]float64{"added": 3, "replaced": 0, "removed": 1, "expired": 2}
	if got := changesOf(t, reg); !maps.Equal(got, want) {
		t.Errorf("changes %v, want %v", got, want)
	}
	if n := set.counts.removed.Load(); n != 1 { // not by two numbers that rise one after the other
		t.Errorf("%d are counted as removed", n)
	}
}

func changesOf(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	families, err := reg.Gather()
	testkit.Should(t, err)
	changes := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "blockd_live_changes_total" {
				changes[m.Label[0].GetValue()] = m.Counter.GetValue()
			}
		}
	}
	return changes
}

// grouped gives each change as a request of one group.
func grouped(t *testing.T, set *Set, changes ...Change) []*request {
	t.Helper()
	var group []*request
	for _, c := range changes {
		e := testkit.Value(newEntry(c, nil, time.Now()))(t)
		group = append(group, &request{changes: []Change{c}, wanted: []*Entry{e}, now: time.Now()})
	}
	set.writing.Lock()
	defer set.writing.Unlock()
	set.applyGroup(group)
	return group
}

// A request sees those before it in its group, and they are written in this order.
func TestGroupIsInOrder(t *testing.T) {
	set := open(t, Settings{})
	group := grouped(t, set, Change{Entry: "a@b.example", Why: "1"}, Change{Entry: "a@b.example", Why: "1"},
		Change{Entry: "a@b.example", Remove: true}, Change{Entry: "a@b.example", Remove: true}, Change{Entry: "a@b.example", Why: "2"})
	changed := slices.Collect(func(yield func(bool) bool) {
		for _, r := range group {
			if !yield(r.err == nil && r.outcomes[0].Changed()) {
				return
			}
		}
	})
	testkit.EqualSlices(t, "changed", changed, []bool{true, false, true, false, true})
	testkit.Equal(t, "records", set.records, 3)
	seen, err := Read(set.folder)
	if err != nil || !maps.Equal(reasons(seen), map[string]string{"a@b.example": "2"}) {
		t.Errorf("on the disk: %v, %v", err, reasons(seen))
	}
}

// If a group cannot be written, each of its requests is told, also one that asks for what
// another had asked for; nothing of them acts, and nothing is there afterwards.
func TestGroupFailsWhole(t *testing.T) {
	set := open(t, Settings{})
	apply(t, set, Change{Entry: "before@b.example"})
	set.writing.Lock()
	set.journal.broken = errors.New("the sync failed")
	set.writing.Unlock()
	for i, r := range grouped(t, set, Change{Entry: "a@b.example"}, Change{Entry: "a@b.example"}, Change{Entry: "before@b.example", Remove: true}) {
		if !errors.Is(r.err, ErrUnwritable) || r.outcomes != nil {
			t.Errorf("request %d: %v, %v", i, r.outcomes, r.err)
		}
	}
	testkit.Must(t, set.Tidy())
	apply(t, set, Change{Entry: "after@b.example"})
	seen, err := Read(set.folder)
	if err != nil || texts(set) != "block after@b.example, block before@b.example" || texts(seen) != texts(set) {
		t.Errorf("in force %s, on the disk %s, %v", texts(set), texts(seen), err)
	}
}
