package hits

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

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
