package hits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
)

// TestTopEntries holds what is promised against exact counts: the true count lies between Hits-Over and Hits, and
// an entry that has more than one in maxTopEntries of all hits is there.
func TestTopEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.1, 4, 10*maxTopEntries)
	var top topEntries
	exact, n := map[string]uint64{}, uint64(0)
	now := time.Now()
	for range 200_000 {
		entry := fmt.Sprint("n", zipf.Uint64(), ".example")
		exact[entry]++
		n++
		top.count("own", entry, 1, true, false, now)
	}
	all := firsts(&top, 1<<30)
	if len(all) > 2*maxTopEntries || len(top.places) != len(all) || len(exact) <= 2*maxTopEntries {
		t.Fatalf("%d entries in %d places of %d", len(all), len(top.places), len(exact))
	}
	there := map[string]bool{}
	for i, e := range all {
		there[e.Text] = true
		if is := exact[e.Text]; is > e.Hits || is < e.Hits-e.Over || e.Sole > is {
			t.Errorf("%s has %d hits, counted %d, %d of them perhaps another's, sole %d", e.Text, is, e.Hits, e.Over, e.Sole)
		}
		if i > 0 && e.Hits > all[i-1].Hits {
			t.Errorf("%d hits behind %d", e.Hits, all[i-1].Hits)
		}
		if e.Over > n/maxTopEntries {
			t.Errorf("%s may be %d over, more than %d", e.Text, e.Over, n/maxTopEntries)
		}
	}
	for entry, is := range exact {
		if is > n/maxTopEntries && !there[entry] {
			t.Errorf("%s is missing, with %d of %d hits", entry, is, n)
		}
	}
	for at, e := range top.entries {
		testkit.MustEqual(t, fmt.Sprintf("%s is not at its place", e.Text), top.places[entryKey{e.List, e.Text}], int32(at))
	}
	if got := firsts(&top, 3); len(got) != 3 || got[0] != all[0] {
		t.Errorf("first(3) = %+v", got)
	}
}

func BenchmarkTopEntries(b *testing.B) {
	var top topEntries
	names := make([]string, 10*maxTopEntries)
	for i := range names {
		names[i] = fmt.Sprint("n", i, ".example")
	}
	now, i := time.Now(), 0
	for b.Loop() {
		top.count("own", names[i*7919%len(names)], 1, true, false, now)
		i++
	}
}

func firsts(t *topEntries, n int) []Entry {
	all, _ := t.merged(n)
	return all
}

// TestProcessesInARow counts the same hits in one process after the other, each restored from the one before, which may go
// on for a while. What is promised of entries must hold of all together, and lists must be exact.
func TestProcessesInARow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.1, 4, 3*maxTopEntries)
	exact, n := map[string]uint64{}, uint64(0)
	var now, before *Table
	at := time.Unix(1_700_000_000, 0).UTC()
	for range 6 {
		before, now = now, NewTable(prometheus.NewRegistry())
		for i := range 30_000 {
			in := now
			if before != nil && i%3 == 0 {
				in = before
			}
			entry := fmt.Sprint("n", zipf.Uint64(), ".example")
			exact[entry]++
			n++
			at = at.Add(time.Second)
			in.top.count("own", entry, 1, true, false, at)
			in.of("own").hits.Add(1)
			in.of("own").last.Store(at.UnixNano())
			if before != nil && i%10_000 == 9_999 {
				testkit.Must(t, now.Restore(before.State()))
			}
		}
		if before != nil {
			testkit.Must(t, now.Restore(before.State()))
		}
	}
	if all := now.Lists(); len(all) != 1 || all[0].Hits != n || !all[0].Last.Equal(at) {
		t.Errorf("lists: %+v, want %d hits until %v", all, n, at)
	}
	there := map[string]bool{}
	for _, e := range now.Top(1 << 30) {
		there[e.Text] = true
		if is := exact[e.Text]; is > e.Hits || is < e.Hits-e.Over || e.Sole > is {
			t.Errorf("%s has %d hits, counted %d, %d of them perhaps another's, sole %d", e.Text, is, e.Hits, e.Over, e.Sole)
		}
	}
	for entry, is := range exact {
		if is > 6*n/maxTopEntries && !there[entry] {
			t.Errorf("%s is missing, with %d of %d hits", entry, is, n)
		}
	}
}

// TestKeep holds that what was counted is there after a restart, that metrics begin anew, and that a file of something else
// costs nothing but the counts.
func TestKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blockd.bdx.hits")
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		first := NewTable(reg)
		testkit.Must(t, first.Load(path))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- first.Keep(ctx, path, slog.New(slog.DiscardHandler)) }()
		hit := func(in *Table) {
			in.changes.Add(1)
			in.of("own").hits.Add(1)
			in.top.count("own", "a.example", 3, false, true, time.Now())
		}
		hit(first)
		time.Sleep(saveEvery + time.Second)
		killed := NewTable(prometheus.NewRegistry())
		if err := killed.Load(path); err != nil || len(killed.Lists()) != 1 || killed.Lists()[0].Hits != 1 {
			t.Errorf("after a minute: %+v, %v", killed.Lists(), err)
		}
		hit(first)
		stop()
		testkit.Should(t, <-done)
		second := NewTable(prometheus.NewRegistry())
		testkit.Must(t, second.Load(path))
		hit(second)
		if all, top := second.Lists(), second.Top(9); all[0].Hits != 3 || len(top) != 1 || top[0].Hits != 3 || top[0].Overridden != 3 {
			t.Errorf("after a restart: %+v, %+v", all, top)
		}
	})
	// What a process that was taken over from tells at its end is kept, also by one that has not counted itself.
	synctest.Test(t, func(t *testing.T) {
		former, now, next := NewTable(prometheus.NewRegistry()), NewTable(prometheus.NewRegistry()), NewTable(prometheus.NewRegistry())
		former.changes.Add(1)
		former.of("own").hits.Add(7)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- now.Keep(ctx, path, slog.New(slog.DiscardHandler)) }()
		testkit.Should(t, now.Restore(former.State()))
		stop()
		if err := errors.Join(<-done, next.Load(path)); err != nil || len(next.Lists()) != 1 || next.Lists()[0].Hits != 7 {
			t.Errorf("after the last report and a restart: %+v, %v", next.Lists(), err)
		}
	})
	for name, text := range map[string]string{"torn": string(testkit.Read(t, path))[:40], "foreign": `{"lists":[]}`, "empty": ""} {
		testkit.Write(t, path, text)
		table := NewTable(prometheus.NewRegistry())
		if err := table.Load(path); err == nil || len(table.Lists()) != 0 {
			t.Errorf("%s: %v, %+v", name, err, table.Lists())
		}
	}
}

// What is forgotten is in neither the table nor its file, whichever process counted it; other counts stay.
func TestForget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hits")
	before := NewTable(prometheus.NewRegistry())
	now := time.Now()
	for _, entry := range []string{"bob@there.example", "carl@there.example"} {
		before.top.count("bad", entry, 1, true, false, now)
		before.top.count("worse", entry, 1, true, false, now)
	}
	table := NewTable(prometheus.NewRegistry())
	testkit.Must(t, table.Restore(before.State()))
	table.top.count("bad", "bob@there.example", 1, true, false, now)
	table.top.count("bad", "dora@there.example", 1, true, false, now)
	is := func(entry string) bool { return entry == "bob@there.example" }
	testkit.MustEqual(t, "Forget", testkit.Value(table.Forget(is, path))(t), 2)
	testkit.Equal(t, "once more", testkit.Value(table.Forget(is, path))(t), 0)
	table.top.count("bad", "dora@there.example", 1, true, false, now) // its place is known
	next := NewTable(prometheus.NewRegistry())
	testkit.Must(t, next.Load(path))
	for what, got := range map[string][]Entry{"here": table.Top(10), "in the file": next.Top(10)} {
		if len(got) != 3 {
			t.Errorf("%s: %+v", what, got)
		}
		for _, e := range got {
			if e.Text == "bob@there.example" || what == "here" && e.Text == "dora@there.example" && e.Hits != 2 {
				t.Errorf("%s: %+v", what, e)
			}
		}
	}
}
