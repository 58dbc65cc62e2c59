package index

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"blockd/index/internal/format"
	"blockd/lists"
)

// What lists are worth is counted as slowly and plainly as can be.
func TestWorthAgreesWithModel(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rows := rowsNamed(1 + rng.IntN(12))
		for i := range rows { // files of a glob are one list
			rows[i].Source.List = fmt.Sprint("list", rng.IntN(6))
		}
		entries := randomEntries(t, rng, len(rows), 400)
		ix := indexOf(t, seeded(1), rows, entries)

		var names []string
		number := map[string]int{}
		for _, row := range rows {
			if _, ok := number[row.Source.List]; !ok {
				number[row.Source.List] = len(names)
				names = append(names, row.Source.List)
			}
		}
		holders := map[string]map[int]bool{}
		for _, e := range entries {
			if holders[e.key.Text] == nil {
				holders[e.key.Text] = map[int]bool{}
			}
			holders[e.key.Text][number[rows[e.row].Source.List]] = true
		}
		worth := make([]ListWorth, len(names))
		for i, name := range names {
			worth[i].List = name
		}
		var overlaps []Overlap
		for a := range names {
			for b := range names {
				both := uint64(0)
				for _, by := range holders {
					if by[a] && by[b] {
						both++
						if a == b && len(by) == 1 {
							worth[a].Unique++
						}
					}
				}
				if a == b {
					worth[a].Keys = both
				} else if a < b && both > 0 {
					overlaps = append(overlaps, Overlap{A: names[a], B: names[b], Keys: both})
				}
			}
		}
		if got := ix.Worth(); !reflect.DeepEqual(got, worth) {
			t.Fatalf("seed %d: worth %v, want %v", seed, got, worth)
		}
		if got := ix.Overlaps(); !reflect.DeepEqual(got, overlaps) {
			t.Fatalf("seed %d: overlaps %v, want %v", seed, got, overlaps)
		}
	}
}

// Pairs are counted for the first lists only; what each is worth, for all.
func TestWorthOfVeryManyLists(t *testing.T) {
	rows := rowsNamed(format.PairedLists + 2)
	var entries []listed
	for _, row := range []int{0, 1, format.PairedLists - 1, format.PairedLists, format.PairedLists + 1} {
		entries = append(entries, listed{row: row, key: domainKey(t, "bulk.test"), scope: lists.Tree, line: 1})
	}
	entries = append(entries, listed{row: format.PairedLists, key: domainKey(t, "own.test"), scope: lists.Tree, line: 2})
	ix := indexOf(t, seeded(1), rows, entries)
	last := fmt.Sprint("list", format.PairedLists-1)
	if got, want := ix.Overlaps(), []Overlap{{A: "list0", B: "list1", Keys: 1}, {A: "list0", B: last, Keys: 1}, {A: "list1", B: last, Keys: 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("overlaps %v, want %v", got, want)
	}
	if got, want := ix.Worth()[format.PairedLists], (ListWorth{List: fmt.Sprint("list", format.PairedLists), Keys: 2, Unique: 1}); got != want {
		t.Errorf("worth %v, want %v", got, want)
	}
	if got, want := ix.Worth()[2], (ListWorth{List: "list2"}); got != want {
		t.Errorf("worth of an empty list %v, want %v", got, want)
	}
}
