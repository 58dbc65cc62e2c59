package shared_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/records/audit"
)

var soakLost = flag.Int("soak-lost", 1_000_000-1, "how many entries an emptied engine has had, with -soak")

// fill puts so many entries into an engine.
func (e engine) fill(t *testing.T, count int) {
	t.Helper()
	w := e.open(t, nil)
	defer w.Close()
	for at := 0; at < count; at += 1000 {
		var wants []live.Want
		for i := at; i < min(at+1000, count); i++ {
			wants = append(wants, live.Want{Row: live.Row{Entry: fmt.Sprintf("x%d@many.example", i), Scope: "exact", Action: "block", Why: "one of many", By: "anna", Created: 1_790_000_000}})
		}
		testkit.Value(w.Write(t.Context(), wants, live.Terms{}))(t)
	}
}

// An engine that was emptied has lost each entry. All of them are told of, after a restart too, and all can be offered again.
func TestAnEmptiedEngineLosesNothingForGood(t *testing.T) {
	count := 12_000
	if *soak {
		count = *soakLost
	}
	e := ofRedis(t)
	e.fill(t, count)
	folder := filepath.Join(t.TempDir(), "live")
	a := begin(t, folder, e.kind, e.open(t, nil), nil)
	testkit.Within(t, "all entries", 5*time.Minute, func() bool { return a.Status().Entries == int64(count) })
	peak := testkit.PeakHeap()
	began, spent := time.Now(), testkit.CPUTime(t)
	tell := func(what string) {
		t.Logf("%d losses %s after %s, %s of processor time", count, what, time.Since(began).Round(time.Millisecond), (testkit.CPUTime(t) - spent).Round(time.Millisecond))
		began, spent = time.Now(), testkit.CPUTime(t)
	}
	e.empty(t)
	testkit.Within(t, "the losses", 10*time.Minute, func() bool { return a.Status().Lost == count && a.Status().Entries == 0 })
	tell("noticed")
	some, err := a.Lost(7)
	if err != nil || len(some) != 7 || some[6].Row.Why != "one of many" || some[6].Row.Gone != 0 {
		t.Fatalf("Lost(7) = %+v, %v", some, err)
	}
	a.stop()
	tell("left on the disk")
	a = begin(t, folder, e.kind, e.open(t, nil), nil)
	testkit.Equal(t, "lost after a restart", a.Status().Lost, count)
	tell("read")
	a.follows(t)
	a.apply(t, block(some[3].Row.Entry, "again, by hand"))
	testkit.Equal(t, "lost after one was added again", a.Status().Lost, count-1)
	made, err := a.Offer(t.Context(), "anna")
	tell("offered")
	if err != nil || made != count-1 || a.Status().Lost != 0 || a.Status().Entries != int64(count) {
		t.Errorf("Offer() = %d, %v; then %+v", made, err, a.Status())
	}
	if heap := peak(); heap > 64<<20+400*uint64(count) {
		t.Errorf("the heap has grown by %d MB", heap>>20)
	} else {
		t.Logf("the heap has grown by %d MB at the most", heap>>20)
	}
	testkit.Equal(t, "what was added since was offered again", a.has(some[3].Row.Entry), "block again, by hand")
	testkit.Fails(os.Stat(filepath.Join(folder, "lost")))(t, "the file of losses is still there", os.ErrNotExist)
}

// deaf is an engine that writes, and then answers no question.
type deaf struct {
	shared.Engine
	on atomic.Bool
}

func (d *deaf) Changes(ctx context.Context, since uint64, most int) (shared.Page, error) {
	if d.on.Load() {
		return shared.Page{}, errors.New("it answers no question")
	}
	return d.Engine.Changes(ctx, since, most)
}

// A change that the engine has acknowledged is known here, though no question was answered after it: if a failover loses it, that is told of.
func TestAnAcknowledgedChangeIsKnown(t *testing.T) {
	server := redisserver.Start(t)
	e := atRedis(server.Address)
	d := &deaf{Engine: e.open(t, nil)}
	a := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, d, nil)
	a.follows(t)
	a.apply(t, block("known.example", "k"), block("gone.example", "g"))
	testkit.Must(t, client(t, server.Address).Save(context.Background()).Err())
	d.on.Store(true)
	a.apply(t, block("lost.example", "l"), live.Change{Entry: "gone.example", Remove: true})
	if a.has("lost.example") == "" || a.has("gone.example") != "" {
		t.Error("the change does not act on the machine that was told it is made")
	}
	server.Kill()
	redisserver.StartAt(t, server.Address, "--dir", server.Dir)
	d.on.Store(false)
	testkit.Eventually(t, "the loss", func() bool { return a.Status().Lost == 2 })
	a.eventually(t, "lost.example", "")
	a.eventually(t, "gone.example", "block g")
	testkit.Equal(t, "what differs", a.same(content(t, e)), "")
}

// A change made alone that the engine refuses for good is set aside, with a line of the audit journal. The others are made.
func TestOneRefusedChangeBlocksNoOther(t *testing.T) {
	e := ofPostgres(t)
	link, folder := testkit.NewProxy(t, e.address), filepath.Join(t.TempDir(), "audit")
	journal := audit.New(audit.Settings{Folder: folder, Max: 1 << 20, Keep: time.Hour})
	a := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, e.open(t, link), func(o *shared.Options) { o.Alone, o.Audit = true, journal })
	a.follows(t)
	e.exec(t, "alter table blockd_live add check (entry <> 'no.example')")
	if _, err := a.set.Apply(block("no.example", "n")); !errors.Is(err, live.ErrInvalid) || !a.Status().Up {
		t.Errorf("refused at once: %v, up: %v", err, a.Status().Up)
	}
	link.Set(unreachable)
	for _, name := range []string{"one.example", "no.example", "two.example"} {
		a.apply(t, block(name, "alone"))
	}
	link.Set(whole)
	testkit.Eventually(t, "nothing waits", func() bool { s := a.Status(); return s.Pending == 0 && s.Refused == 1 })
	if rows := content(t, e); len(rows) != 2 {
		t.Errorf("the engine has %v", rows)
	}
	testkit.Equal(t, "the refused change acts nowhere", a.has("no.example"), "block alone")
	testkit.Has(t, strings.Join(a.Problems(), "\n"), `"no.example"`)
	names, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	text := string(testkit.Read(t, names[0]))
	testkit.Got(strings.Count(text, "no.example"), text)(t, "the audit journal", 1, `…"failed"…`)
	if _, err := a.Dismiss(); err != nil || len(a.Problems()) != 0 {
		t.Errorf("dismissed: %v, %q", err, a.Problems())
	}
}

// A full read does not undo what was changed alone and is still to be offered; what was lost meanwhile is not kept in force by it.
func TestAFullReadKeepsPendingChanges(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		link := testkit.NewProxy(t, e.address)
		seen := make(chan string, 1000)
		w := &watched{Engine: e.open(t, link)}
		a := begin(t, filepath.Join(t.TempDir(), "live"), e.kind, w, func(o *shared.Options) { o.Alone = true })
		a.follows(t)
		a.apply(t, block("known.example", "old"), block("gone.example", "old"))
		link.Set(unreachable)
		a.apply(t, block("new.example", "alone"), block("known.example", "alone"), live.Change{Entry: "gone.example", Remove: true})
		before := func() { seen <- a.has("new.example") + a.has("known.example") + a.has("gone.example") }
		w.write.Store(&before)
		// Everything is read when the machine was away for long.
		a.stop()
		aged(t, a.folder)
		w = &watched{Engine: e.open(t, link)}
		w.write.Store(&before)
		link.Set(whole)
		old := a
		a = begin(t, old.folder, e.kind, w, func(o *shared.Options) { o.Alone = true })
		testkit.Eventually(t, "nothing waits", func() bool { return a.Status().Up && a.Status().Pending == 0 })
		if !strings.Contains(a.log.String(), "everything is read") {
			t.Fatal("not everything was read")
		}
		testkit.Equal(t, "after the full read, before the offer", <-seen, "block aloneblock alone")
		testkit.Equal(t, "what differs", a.same(content(t, e)), "")
	})
}

// watched is an engine that calls a function before it writes.
type watched struct {
	shared.Engine
	write atomic.Pointer[func()]
}

func (w *watched) Write(ctx context.Context, wants []live.Want, terms live.Terms) (shared.Written, error) {
	if f := w.write.Load(); f != nil {
		(*f)()
	}
	return w.Engine.Write(ctx, wants, terms)
}

// One token that is none does not take the others away. It is named, and valid nowhere.
func TestABadTokenLeavesTheOthers(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a := fleet(t, e, 1, func(o *shared.Options) {
			o.Token = func(line string) error {
				if strings.Contains(line, "admin") {
					return errors.New("want read or write")
				}
				return nil
			}
		})[0]
		add := func(name, scope, sum string) {
			t.Helper()
			testkit.Must(t, a.AddToken(t.Context(), shared.Token{Name: name, Scope: scope, Sum: sum, By: "anna"}, false))
		}
		sum := "sha256:" + strings.Repeat("ab", 32)
		add("first", "read", sum)
		add("second", "admin", sum)
		add("two words", "read", sum)
		add("last", "write", sum)
		file := func() string {
			text, err := os.ReadFile(a.TokenFile())
			if err != nil {
				return err.Error()
			}
			return string(text)
		}
		check := func() {
			t.Helper()
			testkit.Eventually(t, "the good ones", func() bool { return strings.Contains(file(), "\nlast write") })
			if text := file(); !strings.Contains(text, "\nfirst read") || strings.Contains(text, "admin") || strings.Contains(text, "words") {
				t.Errorf("the file has\n%s", text)
			}
			testkit.Has(t, strings.Join(a.Problems(), "\n"), "2 tokens of the fleet are not valid here")
		}
		check()
		a.stop()
		testkit.Must(t, os.Remove(a.TokenFile()))
	})
}

// What somebody has written into a Redis by hand, and is no row, is passed over and named; the rest goes on.
func TestWhatIsNoRowIsPassedOver(t *testing.T) {
	e := ofRedis(t)
	a := fleet(t, e, 1, func(o *shared.Options) { o.SumEvery = time.Second })[0]
	c, ctx := client(t, e.address), context.Background()
	write := func(field, value string) {
		t.Helper()
		rev := c.Incr(ctx, "{blockd:eu-mx}:rev").Val()
		testkit.Must(t, c.HSet(ctx, "{blockd:eu-mx}:live", field, value).Err())
		testkit.Must(t, c.XAdd(ctx, &goredis.XAddArgs{Stream: "{blockd:eu-mx}:log", ID: fmt.Sprintf("%d-1", rev), Values: []string{"f", field, "v", value}}).Err())
	}
	a.apply(t, block("before.example", "b"))
	write("no field", "no value")
	write("\x1fbad.example\x1ftree", "x\ty")
	write("\x1flong.example\x1ftree", "1\t0\t\t0\t0\tblock\t\tanna\t"+strings.Repeat("w", 50_000_000))
	testkit.Eventually(t, "they are passed over", func() bool { return a.set.Cursor().Revision == 4 })
	a.apply(t, block("after.example", "a"))
	a.eventually(t, "before.example", "block b")
	b := fleet(t, e, 1, nil)[0] // reads everything
	for _, n := range []*node{a, b} {
		n.eventually(t, "after.example", "block a")
		if p := strings.Join(n.Problems(), "\n"); !strings.Contains(p, "3 fields that are no entries") || len(p) > 1000 {
			t.Errorf("Problems() = %.2000q", p)
		}
	}
	testkit.Eventually(t, "nothing differs", func() bool { return a.Status().Up && a.Status().Differs == 0 })
}

// Rows of any length are left out of the table too.
func TestLongRowsAreLeftOut(t *testing.T) {
	e := ofPostgres(t)
	a := fleet(t, e, 1, nil)[0]
	a.apply(t, block("before.example", "b"))
	e.exec(t, "insert into blockd_live (name, entry, scope, action, why, rev) values ('eu-mx', 'long.example', 'tree', 'block', repeat('w', 100000000), nextval('blockd_live_rev'))")
	a.apply(t, block("after.example", "a"))
	a.eventually(t, "before.example", "block b")
	testkit.Has(t, strings.Join(a.Problems(), "\n"), "1 rows of the store cannot be read")
}

// Reports are bounded, whoever writes them.
func TestReportsAreBounded(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a := fleet(t, e, 1, nil)[0]
		for name, report := range map[string]string{"small": "{}", "large": strings.Repeat("x", shared.MaxReport+1)} {
			testkit.Must(t, a.Report(t.Context(), name, []byte(report), time.Minute))
		}
		all := testkit.Value(a.Reports(t.Context()))(t)
		testkit.MustEqual(t, "reports", len(all), 1)
		testkit.Equal(t, "the report", string(all["small"]), "{}")
	})
}
