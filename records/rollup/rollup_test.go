package rollup

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/records/history"
)

// rig is a Table that runs in a bubble of synctest, where it is midnight.
type rig struct {
	*Table
	path string
	log  bytes.Buffer
	stop func()
}

func newRig(t *testing.T, path, folder string, totals func() []Total) *rig {
	r := &rig{Table: New(path, totals), path: path}
	r.stop = testkit.Running(t, func(ctx context.Context) {
		testkit.Should(t, r.Run(ctx, folder, slog.New(slog.NewTextHandler(&r.log, nil))))
	})
	synctest.Wait()
	return r
}

func decision(outcome, list string) *history.Record {
	return &history.Record{Time: time.Now(), Door: "smtp", Outcome: outcome, Verdict: "clear", List: list}
}

// counts are the sums of the series of a query, by name.
func (r *rig) counts(t *testing.T, q Query) map[string]uint64 {
	t.Helper()
	s := testkit.Value(r.Series(q, time.Now()))(t)
	all := map[string]uint64{}
	for _, row := range s.Rows {
		testkit.Equal(t, fmt.Sprintf("counts of %s", row.Name), len(row.Counts), int(s.Until.Sub(s.From)/s.Step))
		for _, n := range row.Counts {
			all[row.Name] += n
		}
	}
	return all
}

func (r *rig) want(t *testing.T, q Query, want string) {
	t.Helper()
	testkit.Equal(t, q, fmt.Sprint(r.counts(t, q)), "map["+want+"]")
}

func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Uint64
		told.Store(35)
		r := newRig(t, filepath.Join(t.TempDir(), "x"), "", func() []Total {
			return []Total{{Name: "dns", N: told.Load()}, {Overruled: true, Name: "own", N: told.Load() / 2}}
		})
		defer r.stop()
		<-time.After(time.Second) // within a minute
		for range 5 {
			told.Add(1)
			r.Add(decision("accept", ""))
			r.Add(decision("refuse", "own"))
			<-time.After(time.Minute)
		}
		r.Add(decision("refuse", ""))
		r.Add(&history.Record{Door: "milter", Outcome: "defer", List: "other"})
		r.Add(&history.Record{Door: "milter", Outcome: "accept", List: "new", Shadow: true})
		r.Add(&history.Record{Door: "dns", Outcome: history.Listed, List: "own"})
		synctest.Wait()
		for _, span := range Spans() {
			r.want(t, Query{By: "outcome", Span: span}, "accept:6 defer:1 refuse:6")
		}
		r.want(t, Query{By: "outcome", Span: "1h", Door: "milter"}, "accept:1 defer:1")
		r.want(t, Query{By: "outcome", Span: "1h", List: "own"}, "refuse:5")
		r.want(t, Query{By: "door", Span: "1h"}, "milter:2 smtp:11")
		r.want(t, Query{By: "door", Span: "1h", Outcome: "refuse"}, "smtp:6")
		r.want(t, Query{By: "list", Span: "1h"}, "(none):1 other:1 own:5")
		r.want(t, Query{By: "list", Span: "1h", Outcome: "defer"}, "other:1")
		r.want(t, Query{By: "list", Span: "1h", List: "own"}, "own:5")
		r.want(t, Query{By: "shadow", Span: "1h"}, "new:1")
		r.want(t, Query{By: "overruled", Span: "1h"}, "own:20")
		r.want(t, Query{By: "checks", Span: "1h"}, "dns:40 milter:2 smtp:11")
		s, _ := r.Series(Query{By: "outcome", Span: "1h", Door: "milter"}, time.Now())
		if s.Rows[0].Name != "accept" || s.Rows[0].Counts[59] != 1 || time.Until(s.Until) > time.Minute || s.Since.IsZero() || s.Filling {
			t.Errorf("the last hour is %+v", s)
		}
		for _, q := range []Query{{By: "outcome", Span: "1h", Outcome: "refuse"}, {By: "outcome", Span: "1h", Door: "smtp", List: "own"}, {By: "list", Span: "1h", Door: "smtp"}, {By: "door", Span: "2h"}} {
			if _, err := r.Series(q, time.Now()); err == nil {
				t.Errorf("%+v is answered", q)
			}
		}
	})
}

// TestKept: what was counted survives an end, and all but a minute of it a kill.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x")
		r := newRig(t, path, "", nil)
		for range 100 {
			r.Add(decision("refuse", "own"))
			<-time.After(time.Minute)
		}
		synctest.Wait()
		r.Add(decision("accept", ""))
		killed, err := os.ReadFile(path) // as a kill would leave it
		testkit.Must(t, err)
		r.stop()
		r = newRig(t, path, "", nil)
		r.want(t, Query{By: "outcome", Span: "24h"}, "accept:1 refuse:100")
		r.stop()

		for _, torn := range []int{0, 1, 10, 40} {
			testkit.Must(t, os.WriteFile(path, killed[:len(killed)-torn], 0o600))
			r = newRig(t, path, "", nil)
			if n := r.counts(t, Query{By: "outcome", Span: "24h"})["refuse"]; n < 95 {
				t.Errorf("without its last %d octets it has %d", torn, n)
			}
			r.Add(decision("refuse", "own"))
			r.stop()
			r = newRig(t, path, "", nil)
			if n := r.counts(t, Query{By: "outcome", Span: "24h"})["refuse"]; n < 96 || strings.Contains(r.log.String(), "damaged") {
				t.Errorf("written on after %d octets were torn off it has %d: %s", torn, n, &r.log)
			}
			r.stop()
		}
	})
}

func TestDamagedBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, text := range map[string]string{
			"head":   "something else\n",
			"empty":  "",
			"number": fileHead + "00000000 n d refuse \"smtp\"\n",
			"large":  strings.Repeat("x", maxFile+1),
		} {
			path := filepath.Join(t.TempDir(), "x")
			testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
			r := newRig(t, path, "", nil)
			r.Add(decision("refuse", ""))
			r.stop()
			testkit.Got(r.log.String())(t, name, "…begun anew…")
			r = newRig(t, path, "", nil)
			r.want(t, Query{By: "outcome", Span: "1h"}, "refuse:1")
			r.stop()
		}
	})
}

// TestFullDisk: what cannot be written is kept in memory, and written later.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "not", "there")
		r := newRig(t, filepath.Join(folder, "x"), "", nil)
		for range 3 {
			r.Add(decision("refuse", ""))
			<-time.After(time.Minute)
		}
		synctest.Wait()
		r.want(t, Query{By: "outcome", Span: "1h"}, "refuse:3")
		testkit.Must(t, os.MkdirAll(folder, 0o700))
		<-time.After(time.Minute)
		synctest.Wait()
		if text := r.log.String(); strings.Count(text, "not kept for the next start") != 1 || strings.Count(text, "kept again") != 1 {
			t.Errorf("log is %s", text)
		}
		r.stop()
		r = newRig(t, filepath.Join(folder, "x"), "", nil)
		r.want(t, Query{By: "outcome", Span: "1h"}, "refuse:3")
		r.stop()
	})
}

// TestBounds: a hundred days of many lists stay within the file's bound, and a clock that jumps removes nothing of the last month.
func TestBounds(t *testing.T) {
	race.Skip(t)
	table := New("", nil)
	k, at := &table.kept, int64(1_800_000_000/60)
	for hour := range 100 * 24 {
		minute := at + int64(hour)*60
		if hour == 2_000 { // the clock is in another century for a while
			minute += 100 * 365 * 24 * 60
		}
		for range 4 {
			counts := map[cell]uint64{}
			for i := range 100 {
				counts[cell{byList, fmt.Sprint("list", (i+hour)%200), "refuse"}] = uint64(1000 + i)
			}
			text, _ := k.text(counts)
			k.add(bin{minute, false, text})
		}
		k.tidy()
	}
	testkit.AtMost(t, "octets", k.octets, maxKept+1<<16)
	testkit.AtMost(t, "octets of the file", len(k.file()), maxFile)
	now := time.Unix((at+100*24*60)*60, 0)
	table.loaded = true
	s := testkit.Value(table.Series(Query{By: "list", Span: "30d"}, now))(t)
	testkit.MustEqual(t, "rows", len(s.Rows), maxNames+1)
	testkit.MustEqual(t, "the last row", s.Rows[maxNames].Name, Others)
	sum := uint64(0)
	for _, row := range s.Rows {
		for _, n := range row.Counts {
			sum += n
		}
	}
	perHour := uint64(4 * (1000*100 + 99*100/2))
	if want := 30 * 24 * perHour; sum > want || sum < want-7*perHour {
		t.Errorf("30 days have %d, want about %d", sum, want)
	}
}

// TestManyNames: names beyond the bound count for others.
func TestManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, filepath.Join(t.TempDir(), "x"), "", nil)
		for i := range 1_000 {
			r.Add(decision("refuse", fmt.Sprint("list", i)))
		}
		testkit.AtMost(t, "counters", len(*r.cells.Load()), maxAliases+2*maxNames)
		if all := r.counts(t, Query{By: "list", Span: "1h"}); len(all) != maxNames+1 || all[Others] != 1_000-maxNames {
			t.Errorf("%d names, %d others", len(all), all[Others])
		}
		r.stop()
	})
}

// TestFill: at the first start the past comes from the history, once.
func TestFill(t *testing.T) {
	folder, path := filepath.Join(t.TempDir(), "history"), filepath.Join(t.TempDir(), "x")
	l := testkit.Value(history.Open(history.Settings{Folder: folder, Max: history.MinMax, Keep: 365 * 24 * time.Hour}))(t)
	now := time.Now()
	for _, ago := range []time.Duration{time.Hour, 50 * time.Hour, 20 * 24 * time.Hour} {
		for range 10 {
			l.Add(history.Record{Time: now.Add(-ago), Door: "smtp", Outcome: "refuse", Verdict: "blocked", List: "own", Repeated: 3})
		}
	}
	testkit.Must(t, l.Close())
	for range 2 {
		table := New(path, nil)
		stop := testkit.Running(t, func(ctx context.Context) { table.Run(ctx, folder, slog.New(slog.DiscardHandler)) })
		r := &rig{Table: table}
		for {
			if s, err := table.Series(Query{By: "list", Span: "30d"}, now); err == nil && !s.Filling {
				if ago := now.Sub(s.Since); ago < 20*24*time.Hour || ago > 21*24*time.Hour {
					t.Errorf("since %s", s.Since)
				}
				break
			}
		}
		r.want(t, Query{By: "list", Span: "30d"}, "own:90")
		r.want(t, Query{By: "outcome", Span: "7d"}, "refuse:60")
		r.want(t, Query{By: "door", Span: "24h"}, "smtp:30")
		stop()
	}
}

// TestJoin: another process counts on after it has yielded.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x")
		old := newRig(t, path, "", nil)
		old.Add(decision("refuse", "own"))
		old.stop()
		r := newRig(t, path, "", nil)
		for range 3 {
			old.Add(decision("refuse", "own"))
			testkit.Must(t, r.Join(old.State()))
		}
		r.want(t, Query{By: "list", Span: "1h"}, "own:4")
		r.stop()
	})
}

func TestAddAllocatesNothing(t *testing.T) {
	table := New("", nil)
	r := decision("refuse", "own")
	table.Add(r)
	if n := testing.AllocsPerRun(100, func() { table.Add(r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	table := New("", nil)
	b.RunParallel(func(pb *testing.PB) {
		r := decision("refuse", "own")
		for pb.Next() {
			table.Add(r)
		}
	})
}

func ExampleTable() {
	table := New(filepath.Join(os.TempDir(), "none"), nil)
	table.Add(&history.Record{Door: "smtp", Outcome: "refuse", List: "own"})
	s, _ := table.Series(Query{By: "list", Span: "1h"}, time.Now())
	fmt.Println(s.Rows[0].Name, s.Rows[0].Counts[len(s.Rows[0].Counts)-1])
	// Output: own 1
}

// BenchmarkSeries: a year of a full file.
func BenchmarkSeries(b *testing.B) {
	table, now := full()
	b.ReportMetric(float64(table.kept.octets)/1e6, "MB")
	for b.Loop() {
		if _, err := table.Series(Query{By: "list", Span: "365d"}, now); err != nil {
			b.Fatal(err)
		}
	}
}

// full is a Table with as much as it may have, and a time at its end.
func full() (*Table, time.Time) {
	table, chance := New("", nil), rand.New(rand.NewPCG(1, 2))
	at := int64(0)
	for ; table.kept.octets < maxKept-4096; at += 60 {
		counts := map[cell]uint64{}
		for i := range 40 {
			counts[cell{byList, fmt.Sprint("list", i), "refuse"}] = chance.Uint64N(2000)
		}
		text, _ := table.kept.text(counts)
		table.kept.add(bin{at, true, text})
	}
	table.kept.since, table.loaded = 1, true
	return table, time.Unix(at*60, 0)
}

// TestCountedInItsMinute: a decision that is counted a moment after its minute, or before the line of the last one is
// written, counts for its own minute, as the history has it.
func TestCountedInItsMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, filepath.Join(t.TempDir(), "x"), "", nil)
		defer r.stop()
		add := func(late time.Duration) {
			d := decision("refuse", "own")
			d.Time = d.Time.Add(-late)
			r.Add(d)
		}
		<-time.After(59 * time.Second)
		add(0)
		add(-2 * time.Second) // the line of this minute is not written yet
		<-time.After(2 * time.Second)
		add(3 * time.Second)
		add(0)
		add(0)
		want := func(when string) {
			t.Helper()
			s := testkit.Value(r.Series(Query{By: "list", Span: "1h"}, time.Now()))(t)
			at := len(s.Rows[0].Counts) - int(s.Until.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))/time.Minute)
			testkit.EqualSlices(t, when, s.Rows[0].Counts[at:at+2], []uint64{2, 3})
		}
		want("at once")
		<-time.After(time.Minute)
		synctest.Wait()
		want("a minute later")
		<-time.After(time.Minute)
		synctest.Wait()
		want("two minutes later")
	})
}
