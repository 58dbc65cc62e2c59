package index

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/mail/addr"
)

// model answers as slowly and plainly as can be: it walks over all entries and
// compares texts, by the rules of docs/lists.md, section 4.
type model []listed

// covers tells whether e covers a, and how specifically: less is more.
func (e listed) covers(a addr.Addr) (rank int, ok bool) {
	domain := a.Domain()
	const exactName, names, local = 1, 2, 1000
	switch {
	case e.key.Kind == addr.Address:
		return 0, e.key.Text == a.String()
	case e.key.Kind == addr.Local:
		// A sender over 254 octets is looked up by its domain alone.
		return local, e.key.Text == a.Local()+"@" && len(a.String()) <= 254
	case e.key.Text == domain && e.scope == lists.Exact:
		return exactName, true
	case e.key.Text == domain && e.scope == lists.Tree:
		return names, true
	case strings.HasSuffix(domain, "."+e.key.Text) && (e.scope == lists.Tree || e.scope == lists.Sub):
		return names + len(domain) - len(e.key.Text), true
	}
	return 0, false
}

func (m model) lookup(a addr.Addr, now int64) []Match {
	type ranked struct {
		rank, n int
		match   Match
	}
	var found []ranked
	for i, e := range m {
		rank, ok := e.covers(a)
		if !ok || m.repeated(i) || e.expiry != 0 && e.expiry <= now {
			continue
		}
		found = append(found, ranked{rank, i, Match{Row: e.row, Kind: format.KeyKind(e.key.Kind), Key: e.key, Scope: e.scope, Action: e.action, Line: e.line, Reason: e.reason}})
	}
	slices.SortStableFunc(found, func(x, y ranked) int { return 1000*(x.rank-y.rank) + x.match.Row - y.match.Row })
	var matches []Match
	for _, f := range found {
		matches = append(matches, f.match)
	}
	return matches
}

// repeated tells whether the same row said the same before.
func (m model) repeated(i int) bool {
	return slices.ContainsFunc(m[:i], func(e listed) bool {
		return e.row == m[i].row && e.key == m[i].key && e.scope == m[i].scope && e.action == m[i].action
	})
}

// sharedNames make senders and entries meet often.
var (
	testLabels = []string{"a", "b", "bulk", "notbulk", "mx", "test", "example"}
	testLocals = []string{"promo", "offers", "x", `"a b"`, "a#b"}
)

func randomDomain(rng *rand.Rand) string {
	if rng.IntN(30) == 0 {
		return fmt.Sprintf("[198.51.100.%d]", rng.IntN(4))
	}
	labels := 1 + rng.IntN(4)
	if rng.IntN(50) == 0 {
		labels = 60 + rng.IntN(67) // up to 126: the kind mask's last bits and all batches
	}
	var name []string
	for range labels {
		name = append(name, testLabels[rng.IntN(len(testLabels))][:1])
	}
	if labels <= 4 {
		name[rng.IntN(labels)] = testLabels[rng.IntN(len(testLabels))]
	}
	return strings.Join(name, ".")
}

// randomEntries are in order of row and line, as a build reads them.
func randomEntries(t testing.TB, rng *rand.Rand, rows, n int) []listed {
	var entries []listed
	for row := range rows {
		for line := range n/rows + 1 {
			e := listed{row: row, line: line + 1, action: lists.Action(rng.IntN(4))}
			switch rng.IntN(6) {
			case 0:
				key, ok := sender(t, randomSender(rng)).Key()
				if !ok {
					continue
				}
				e.key = key
			case 1:
				key := testkit.Value(addr.LocalKey(testLocals[rng.IntN(len(testLocals))]))(t)
				e.key, e.scope = key, lists.Local
			default:
				e.key, e.scope = domainKey(t, randomDomain(rng)), lists.Scope(rng.IntN(3))
			}
			if rng.IntN(3) == 0 {
				e.reason = fmt.Sprintf("reason %d", rng.IntN(20))
			}
			entries = append(entries, e)
		}
	}
	return entries
}

func randomSender(rng *rand.Rand) string {
	return testLocals[rng.IntN(len(testLocals))] + "@" + randomDomain(rng)
}

// allPerhaps replaces the filter by one that never says no, so that the store
// alone must be right.
func allPerhaps(t testing.TB, ix *Index) {
	t.Helper()
	f, ok := bloom.Over(bytes.Repeat([]byte{0xff}, bloom.BlockBytes*int(ix.file.Blocks)))
	testkit.MustEqual(t, "a filter of ones", ok, true)
	ix.filter.near.Store(f)
}

func TestLookupAgreesWithModel(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() || race.Enabled {
		seeds = 4
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 0))
		rows := 1 + rng.IntN(80)
		entries := randomEntries(t, rng, rows, rng.IntN(1500))
		o := seeded(byte(seed))
		o.SipHash = seed%2 == 1
		ix := indexOf(t, o, rowsNamed(rows), entries)
		if seed%4 >= 2 {
			allPerhaps(t, ix)
		}
		for range 300 {
			a := sender(t, randomSender(rng))
			got := testkit.Value(ix.Lookup(nil, a, testTime))(t)
			if want := (model(entries)).lookup(a, testTime.Unix()); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: Lookup(%s) =\n%v\nmodel says\n%v", seed, a, got, want)
			}
		}
	}
}

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
