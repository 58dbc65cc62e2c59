package index

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

// manyDomains are n entries of list 0, one a line.
func manyDomains(n int) []listed {
	entries := make([]listed, n)
	for i := range entries {
		entries[i] = listed{key: addr.Key{Text: manyName(i), Kind: addr.Domain, Labels: 2}, scope: lists.Tree, line: i + 1}
	}
	return entries
}

// manyName is long enough for the pages' loads to vary.
func manyName(i int) string {
	return fmt.Sprintf("d%d-in-a-label-of-50-octets-or-about-that-many.test", i)
}

func TestEveryEntryIsFoundByItsLine(t *testing.T) {
	for _, n := range []int{0, 1, 2, 100, 3000, 60_000} {
		for _, sip := range []bool{false, true} {
			o := seeded(1)
			o.SipHash = sip
			entries := manyDomains(n)
			ix := indexOf(t, o, rowsNamed(1), entries)
			testkit.Got(ix.Counts())(t, fmt.Sprintf("%d entries: Counts()", n), uint64(n), uint64(n))
			for _, e := range entries {
				got, err := ix.lookup(nil, []addr.Key{e.key}, 0)
				if want := []Match{{Kind: lists.Domain, Key: e.key, Scope: lists.Tree, Line: e.line}}; err != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("%d entries: lookup(%s) = %v, %v, want %v", n, e.key.Text, got, err, want)
				}
			}
			if n == 60_000 && (len(ix.file.Parts) == 1 || overflowPages(ix) == 0) {
				t.Errorf("%d entries: %d partitions, %d overflow pages: this test proves too little", n, len(ix.file.Parts), overflowPages(ix))
			}
			allPerhaps(t, ix)
			for i := range 2000 {
				key := addr.Key{Text: manyName(n + i), Kind: addr.Domain, Labels: 2}
				if got, err := ix.lookup(nil, []addr.Key{key}, 0); err != nil || len(got) > 0 {
					t.Fatalf("%d entries, filter always perhaps: lookup(%s) = %v, %v", n, key.Text, got, err)
				}
			}
			testkit.IsError(t, fmt.Sprintf("%d entries: Verify()", n), ix.Verify(t.Context()), nil)
		}
	}
}

func overflowPages(ix *Index) (n int) {
	for _, p := range ix.file.Parts {
		n += int(p.Overflow)
	}
	return n
}

// Keys of 320 octets with 64 sources each are the largest records there are.
func TestLargestRecords(t *testing.T) {
	const keys, rows = 200, 64
	var entries []listed
	for row := range rows {
		for i := range keys {
			text := fmt.Sprintf("%s%05d", strings.Repeat("x", format.MaxKey-5), i)
			entries = append(entries, listed{row: row, line: 1 << 40, key: addr.Key{Text: text, Kind: addr.Domain, Labels: 200},
				scope: lists.Sub, action: lists.Discard, reason: fmt.Sprint("reason ", row), expiry: 1 << 40})
		}
	}
	ix := indexOf(t, seeded(1), rowsNamed(rows), entries)
	for _, e := range entries[:keys] {
		got := testkit.Value(ix.lookup(nil, []addr.Key{{Text: "own.test", Kind: addr.Domain, Labels: 2}, e.key}, 0))(t)
		testkit.MustEqual(t, "matches", len(got), rows)
		for row, m := range got {
			if want := (Match{Row: row, Kind: lists.Domain, Key: e.key, Scope: e.scope, Action: e.action, Line: e.line, Reason: fmt.Sprint("reason ", row)}); m != want {
				t.Fatalf("match %d = %v, want %v", row, m, want)
			}
		}
	}
}

func TestBuildRefusesEntry(t *testing.T) {
	domain := addr.Key{Text: "bulk.test", Kind: addr.Domain, Labels: 2}
	tests := []struct {
		name string
		e    listed
		want string
	}{
		{"empty key", listed{scope: lists.Exact}, "key of 0 octets, want 1 to 320"},
		{"key of 321 octets", listed{key: addr.Key{Text: strings.Repeat("x", 321)}}, "key of 321 octets, want 1 to 320"},
		{"address as a tree", listed{key: addr.Key{Text: "a@b"}, scope: lists.Tree}, `"a@b" cannot have scope 2`},
		{"domain as a local-part", listed{key: domain, scope: lists.Local}, `"bulk.test" cannot have scope 3`},
		{"unknown action", listed{key: domain, action: 5}, `"bulk.test" with action 5, line 0, expiry 0`},
		{"negative line", listed{key: domain, line: -1}, `"bulk.test" with action 0, line -1, expiry 0`},
	}
	for _, tt := range tests {
		_, err := tryDraft(t, t.TempDir()+"/x.bdx", seeded(1), build.Hooks{}, rowsNamed(1), []listed{tt.e})
		testkit.Equal(t, tt.name, fmt.Sprint(err), tt.want)
	}
}

func TestSameRowSaysTheSameOnce(t *testing.T) {
	key := domainKey(t, "bulk.test")
	soon, later := testTime.Unix()+10, testTime.Unix()+100
	e := func(row, line int, scope lists.Scope, action lists.Action, reason string, expiry int64) listed {
		return listed{row: row, key: key, scope: scope, action: action, line: line, reason: reason, expiry: expiry}
	}
	entries := []listed{
		e(0, 1, lists.Tree, lists.Block, "first", soon),
		e(0, 2, lists.Tree, lists.Block, "second", later), // the same again: lasts longer
		e(0, 3, lists.Exact, lists.Block, "exact", 0),     // another scope
		e(0, 4, lists.Tree, lists.Allow, "allow", 0),      // another action
		e(0, 5, lists.Exact, lists.Block, "again", 0),
		e(1, 1, lists.Tree, lists.Block, "other list", 0), // another list
		e(1, 2, lists.Sub, lists.Block, "below only", 0),
	}
	path := t.TempDir() + "/x.bdx"
	d := draftOf(t, path, seeded(1), build.Hooks{}, rowsNamed(2), entries)
	r := d.Report
	testkit.Got(r.Keys, r.Entries, r.Duplicates, r.Dropped)(t, "keys, entries, duplicates, dropped", 1, 5, 2, 0)
	for _, tt := range []struct {
		sender string
		at     int64
		want   []string
	}{
		{"x@bulk.test", soon, []string{"exact", "first", "allow", "other list"}},
		{"x@bulk.test", later, []string{"exact", "allow", "other list"}},
		{"x@mx.bulk.test", soon, []string{"first", "allow", "other list", "below only"}},
		{"x@notbulk.test", soon, nil},
	} {
		matches, err := d.Index().Lookup(nil, sender(t, tt.sender), time.Unix(tt.at, 0))
		var got []string
		for _, m := range matches {
			got = append(got, m.Reason)
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("Lookup(%s) at %d: %q, %v, want %q", tt.sender, tt.at, got, err, tt.want)
		}
	}
}

// A record has room for 64 entries. An exception, an entry that counts and one
// that never expires must survive whatever crowds around them.
func TestMoreThan64Sources(t *testing.T) {
	key := domainKey(t, "bulk.test")
	rows := rowsNamed(200)
	var entries []listed
	for row := range rows {
		rows[row].Source.Mode = Shadow
		entries = append(entries, listed{row: row, key: key, line: 1, expiry: testTime.Unix() + 1})
	}
	rows[150].Source.Mode, rows[170].Source.Mode = Enforce, Enforce
	entries[150].expiry = 0
	entries[160].expiry = 0
	entries[170].action = lists.Allow
	entries[180].expiry += 1000
	path := t.TempDir() + "/x.bdx"
	d := draftOf(t, path, seeded(1), build.Hooks{}, rows, entries)
	testkit.Equal(t, "entries and dropped", [...]uint64{d.Report.Entries, d.Report.Dropped}, [...]uint64{64, 136})
	matches := testkit.Value(d.Index().Lookup(nil, sender(t, "x@bulk.test"), testTime))(t)
	testkit.MustEqual(t, "matches", len(matches), 64)
	var tail []int
	for i, m := range matches {
		if i > 0 && m.Row <= matches[i-1].Row {
			t.Errorf("row %d behind row %d", m.Row, matches[i-1].Row)
		}
		if m.Row >= 100 {
			tail = append(tail, m.Row)
		}
	}
	testkit.EqualDeep(t, "late rows that are kept", tail, []int{150, 160, 170, 180})
}

func TestExpiredEntriesAreNotBuiltIn(t *testing.T) {
	key := domainKey(t, "bulk.test")
	for _, tt := range []struct{ expiry, earliest int64 }{
		{0, 0}, {testTime.Unix() + 1, testTime.Unix() + 1}, {testTime.Unix(), 0},
	} {
		ix := indexOf(t, seeded(1), rowsNamed(1), []listed{{key: key, expiry: tt.expiry}})
		keys, _ := ix.Counts()
		testkit.Equal(t, fmt.Sprintf("expiry %d: %d keys", tt.expiry, keys), tt.expiry != 0 && tt.expiry <= testTime.Unix(), keys == 0)
		testkit.Equal(t, fmt.Sprintf("expiry %d: header", tt.expiry), ix.file.Expiry, tt.earliest)
	}
}

// Only keys of kinds that some list holds are hashed at all.
func TestKindsThatNoListHoldsAreNotAsked(t *testing.T) {
	address, _ := sender(t, "a@b.test").Key()
	local := testkit.Value(addr.LocalKey("offers"))(t)
	for _, tt := range []struct {
		name  string
		entry listed
		asked uint64
	}{
		{"addresses", listed{key: address}, 1},
		{"local-parts", listed{key: local, scope: lists.Local}, 1},
		{"names of two labels", listed{key: domainKey(t, "bulk.test")}, 1},
		{"names of four labels", listed{key: domainKey(t, "a.b.bulk.test")}, 0},
	} {
		ix := indexOf(t, seeded(1), rowsNamed(1), []listed{tt.entry})
		testkit.Value(ix.Lookup(nil, sender(t, "x@y.example.org"), testTime))(t)
		if _, asked := ix.FalsePositives(); asked != tt.asked {
			t.Errorf("a list of %s: %d keys asked, want %d", tt.name, asked, tt.asked)
		}
	}
}

func TestFalsePositivesAreCounted(t *testing.T) {
	ix := indexOf(t, seeded(1), rowsNamed(1), manyDomains(1000))
	allPerhaps(t, ix)
	senders := make([]addr.Addr, 10)
	for i := range senders {
		senders[i] = sender(t, fmt.Sprintf("x@y%d.example", i))
		testkit.Value(ix.Lookup(nil, senders[i], testTime))(t)
	}
	if fp, asked := ix.FalsePositives(); fp != 10 || asked != 10 { // names of two labels alone
		t.Errorf("FalsePositives() = %d, %d, want 10, 10", fp, asked)
	}
	var b Batch
	ix.LookupBatch(&b, senders, testTime)
	testkit.Got(ix.FalsePositives())(t, "FalsePositives() of a batch", 20, 20)
	if rate := ix.FalsePositiveRate(); rate < 0.004 || rate > 0.006 {
		t.Errorf("FalsePositiveRate() = %v, want about 0.0054", rate)
	}
}

func TestClearSendersAllocateNothing(t *testing.T) {
	ix := indexOf(t, seeded(1), rowsNamed(1), append(manyDomains(1000), randomEntries(t, rand.New(rand.NewPCG(1, 1)), 1, 500)...))
	usual := sender(t, "someone@mail.example.org")
	deep := sender(t, "someone@"+strings.Repeat("q.", 110)+"org")
	dst := make([]Match, 0, 4)
	measure := func(name string) {
		for _, a := range []addr.Addr{usual, deep, {}} {
			allocs := allocations(func() {
				if got, err := ix.Lookup(dst, a, testTime); err != nil || len(got) > 0 {
					t.Fatalf("Lookup(%s) = %v, %v", a, got, err)
				}
			})
			testkit.Equal(t, fmt.Sprintf("%s: Lookup(%s) allocates: times", name, a), allocs, 0)
		}
	}
	measure("filter says no")
	allPerhaps(t, ix)
	measure("filter says perhaps, store says no")
}
