package index

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"blockd/index/internal/build"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/lists/pattern"
	"blockd/mail/addr"
)

func patternKind(text string) lists.Kind {
	if text[0] == '/' {
		return lists.Regexp
	}
	return lists.Glob
}

// matchesPattern is what a pattern of a test means, without package pattern.
func matchesPattern(text, address string) bool {
	if patternKind(text) == lists.Regexp {
		return regexp.MustCompile("(?i)" + strings.Trim(text, "/")).MatchString(address)
	}
	return regexp.MustCompile("^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(text)) + "$").MatchString(address)
}

// patternModel answers by walking over all entries.
func patternModel(entries []listed, a addr.Addr, now int64) []Match {
	var found []Match
	for i, e := range entries {
		repeated := slices.ContainsFunc(entries[:i], func(o listed) bool {
			return o.row == e.row && o.pattern == e.pattern && o.action == e.action
		})
		if e.pattern == "" || repeated || e.expiry != 0 && e.expiry <= now || !matchesPattern(e.pattern, a.String()) {
			continue
		}
		found = append(found, Match{Row: e.row, Kind: patternKind(e.pattern), Pattern: e.pattern, Action: e.action, Line: e.line, Reason: e.reason})
	}
	slices.SortStableFunc(found, func(a, b Match) int { return cmp.Or(a.Row-b.Row, a.Line-b.Line) })
	return found
}

// nearPattern is one of a few hundred that match some of nearSender.
func nearPattern(rng *rand.Rand) string {
	name := func() string { return []string{"bulk", "promo", "shop", "news"}[rng.IntN(4)] }
	switch rng.IntN(6) {
	case 0:
		return fmt.Sprintf(`/^%s[0-9]+@/`, name())
	case 1:
		return fmt.Sprintf(`/\.%s-?%d\./`, name(), rng.IntN(4))
	case 2:
		return fmt.Sprintf(`%s%d*@*`, name(), rng.IntN(4))
	case 3:
		return fmt.Sprintf(`*@%s?.test`, name())
	case 4:
		return fmt.Sprintf(`/(%s|%s)[0-%d]/`, name(), name(), rng.IntN(4))
	}
	return fmt.Sprintf(`/^.*%d@.*%s.*$/`, rng.IntN(4), name())
}

func nearSender(rng *rand.Rand) string {
	name := func() string { return []string{"bulk", "promo", "shop", "news", "anna"}[rng.IntN(5)] }
	return fmt.Sprintf("%s%d@%s.%s-%d.%s%d.test", name(), rng.IntN(5), name(), name(), rng.IntN(4), name(), rng.IntN(4))
}

func TestPatternsAgreeWithModel(t *testing.T) {
	now, seeds := testTime.Unix(), uint64(30)
	if race.Enabled {
		seeds = 4
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 11))
		const rows = 3
		entries := randomEntries(t, rng, rows, 40)
		seen := map[listed]bool{}
		for row := range rows {
			for line := range rng.IntN(60) {
				e := listed{row: row, pattern: nearPattern(rng), action: lists.Action(rng.IntN(4))}
				if seen[e] {
					continue
				}
				seen[e] = true
				e.line, e.expiry = line+1, []int64{0, 0, now, now + 1}[rng.IntN(4)]
				e.reason = []string{"", "listed"}[rng.IntN(2)]
				entries = append(entries, e)
			}
		}
		built := slices.DeleteFunc(slices.Clone(entries), func(e listed) bool { return e.expiry != 0 && e.expiry <= now })
		keys := model(slices.DeleteFunc(slices.Clone(entries), func(e listed) bool { return e.pattern != "" }))
		ix := indexOf(t, seeded(byte(seed)), rowsNamed(rows), entries)
		testkit.Must(t, ix.Verify(t.Context()))
		var senders []addr.Addr
		var answers [][]Match
		for range 100 {
			text := nearSender(rng)
			if rng.IntN(3) == 0 {
				text = randomSender(rng)
			}
			a := sender(t, text)
			want := append(keys.lookup(a, now), patternModel(built, a, now)...)
			got, err := ix.Lookup(nil, a, testTime)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: Lookup(%s) = %v, %v, want %v", seed, a, got, err, want)
			}
			senders, answers = append(senders, a), append(answers, want)
		}
		var b Batch
		for range 2 { // the second with the memory of the first
			ix.LookupBatch(&b, senders, testTime)
			for i, want := range answers {
				if got, err := b.Matches(i); err != nil || !slices.Equal(got, want) {
					t.Fatalf("seed %d: Matches(%s) = %v, %v, want %v", seed, senders[i], got, err, want)
				}
			}
		}
	}
}

func TestNullSenderMatchesNoPattern(t *testing.T) {
	ix := indexOf(t, seeded(1), rowsNamed(1), []listed{{pattern: "/.*/"}, {pattern: "*"}})
	testkit.Equal(t, "Lookup(<>)", len(testkit.Value(ix.Lookup(nil, addr.Addr{}, testTime))(t)), 0)
	testkit.Equal(t, "Lookup(a@b.test)", len(testkit.Value(ix.Lookup(nil, sender(t, "a@b.test"), testTime))(t)), 2)
}

func TestTooManyPatternsRefuseTheirSource(t *testing.T) {
	free := func(name string) Source {
		s := plain(name, testkit.File(t, name, "bulk.test\n"+strings.Repeat("/^[0-9]{9}@/\n", 60)))
		s.Settings.Patterns = true
		return s
	}
	sources := []Source{free("a.txt"), free("b.txt")}
	o := seeded(1)
	_, err := Build(t.Context(), filepath.Join(t.TempDir(), "x.bdx"), sources, o)
	want := "with it all lists have 120 patterns without a text of three octets that a sender must hold, at most 100 can be tried on every sender"
	if err == nil || !strings.Contains(err.Error(), "b.txt: too-big: "+want) {
		t.Fatalf("error %v, want %s", err, want)
	}
	o.KeepGoing = true
	d := built(t, filepath.Join(t.TempDir(), "x.bdx"), sources, o)
	got, err := d.Index().Lookup(nil, sender(t, "123456789@bulk.test"), testTime)
	if err != nil || len(got) != 2 || got[0].Row != 0 || got[1].Row != 0 {
		t.Errorf("Lookup = %v, %v, want two matches of the first source", got, err)
	}
	if row := d.Report.Lists[1]; row.Summary.Verdict != lists.Refused || row.Summary.Why != "too-big: "+want {
		t.Errorf("row 1: %+v", row.Summary)
	}
}

func TestLongestPattern(t *testing.T) {
	text := "/" + strings.Repeat("a", pattern.MaxText) + "/"
	var entries []listed
	for row := range 70 {
		entries = append(entries, listed{row: row, pattern: text, line: 1 << 40, reason: fmt.Sprint(row), expiry: 1 << 40})
	}
	ix := indexOf(t, seeded(1), rowsNamed(70), entries)
	testkit.Should(t, ix.Verify(t.Context()))
	entries[0].pattern = "/a" + text[1:]
	if _, err := tryDraft(t, filepath.Join(t.TempDir(), "x.bdx"), seeded(1), build.Hooks{}, rowsNamed(1), entries[:1]); err == nil || err.Error() != "pattern of 1003 octets with scope 0" {
		t.Errorf("a pattern that is too long: %v", err)
	}
}

func TestClearSenderAmongPatternsDoesNotAllocate(t *testing.T) {
	var entries []listed
	for i := range 500 {
		entries = append(entries, listed{pattern: fmt.Sprintf(`/\.bulk-%d-[0-9]+\.test$/`, i), line: i})
	}
	ix := indexOf(t, seeded(1), rowsNamed(1), entries)
	a := sender(t, "anna.weber@mail.firm.test")
	dst := make([]Match, 0, 4)
	allocs := allocations(func() {
		if got, err := ix.Lookup(dst, a, testTime); err != nil || len(got) > 0 {
			t.Fatalf("Lookup = %v, %v", got, err)
		}
	})
	if allocs != 0 && !race.Enabled {
		t.Errorf("%v allocations", allocs)
	}
}
