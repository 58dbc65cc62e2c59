package pattern

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// setOf makes a Set of what Parse takes, as an index does.
func setOf(t testing.TB, patterns []*Pattern) *Set {
	t.Helper()
	stored := make([]Stored, len(patterns))
	for i, need := range Choose(patterns) {
		stored[i] = Stored{patterns[i].Kind(), patterns[i].Text(), need}
	}
	return NewSet(stored)
}

// randomPattern draws from few letters, so that patterns share texts and match.
func randomPattern(rng *rand.Rand, depth int) string {
	letters := func() string {
		var b strings.Builder
		for range 1 + rng.IntN(4) {
			b.WriteByte("abAB1@"[rng.IntN(6)])
		}
		return b.String()
	}
	if depth == 0 {
		return letters()
	}
	sub := func() string { return randomPattern(rng, depth-1) }
	switch rng.IntN(14) {
	case 0:
		return "(" + sub() + "|" + sub() + ")"
	case 1:
		return "(?:" + sub() + ")*"
	case 2:
		return "(" + sub() + ")+"
	case 3:
		return "(?:" + sub() + ")?"
	case 4:
		return sub() + ".*" + sub()
	case 5:
		return "[" + letters() + "]" + sub()
	case 6:
		return sub() + "[^" + letters() + "]"
	case 7:
		return "^" + sub()
	case 8:
		return sub() + "$"
	case 9:
		return "(?:" + sub() + "){2}" + letters()
	case 10:
		return "^.*" + sub() + ".*$"
	case 11:
		return sub() + `\b` + sub()
	case 12:
		return "(?-i:" + strings.ToLower(letters()) + ")" + sub()
	}
	return sub() + sub()
}

func randomText(rng *rand.Rand, most int) string {
	var b strings.Builder
	for range rng.IntN(most) {
		b.WriteByte("abab1@"[rng.IntN(6)])
	}
	return b.String()
}

func TestSetAgreesWithRegexp(t *testing.T) {
	race.Skip(t)
	seeds := uint64(100)
	if race.Enabled {
		seeds = 10
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		var patterns []*Pattern
		for len(patterns) < 60 {
			kind, text := Regexp, randomPattern(rng, rng.IntN(4))
			if rng.IntN(4) == 0 {
				kind, text = Glob, strings.NewReplacer("1", "*", "A", "?").Replace(randomText(rng, 9)+"1A"[:rng.IntN(3)])
			}
			p, err := Parse(kind, text)
			if err != nil {
				t.Fatalf("seed %d: %q: %v", seed, text, err)
			}
			patterns = append(patterns, p)
		}
		set := setOf(t, patterns)
		var slow []*regexp.Regexp
		for _, p := range patterns {
			slow = append(slow, naive(t, p.Kind(), p.Text()))
		}
		for range 40 {
			text := randomText(rng, 30)
			want := []int(nil)
			for i := range slow {
				if slow[i].MatchString(text) {
					want = append(want, i)
				}
			}
			got, err := set.Match(nil, text)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d: Match(%q) = %v, %v, want %v: %s", seed, text, got, err, want, difference(patterns, got, want))
			}
		}
	}
}

func difference(patterns []*Pattern, got, want []int) string {
	var b strings.Builder
	for i, p := range patterns {
		if slices.Contains(got, i) != slices.Contains(want, i) {
			fmt.Fprintf(&b, "%s needs %q; ", p, p.Needs())
		}
	}
	return b.String()
}

// FuzzPattern holds that no pattern is lost by looking for its literals first, and
// that nothing it says is other than what Go's own regexp says.
func FuzzPattern(f *testing.F) {
	f.Add(false, `^.*@.*\.bulk-[0-9]+\.example$`, "x@mx.bulk-17.example")
	f.Add(false, `ne(ws|wz)letter(a|b|)@`, "newzletterb@x.test")
	f.Add(false, `(?i:Promo)+\d{2,3}|^free`, "promo17@x.test")
	f.Add(true, "promo*@b?lk.test", "promo1@bulk.test")
	f.Add(true, "*ab*aba", "xabyaba")
	f.Fuzz(func(t *testing.T, isGlob bool, expr, text string) {
		// Canonical text has small letters, no controls, and one s.
		text = strings.NewReplacer("ſ", "s", "ς", "σ").Replace(strings.ToLower(text))
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) || len(text) > 300 {
			return
		}
		kind := Regexp
		if isGlob {
			kind = Glob
		}
		p, err := Parse(kind, expr)
		if err != nil {
			return
		}
		if again, err := Parse(kind, p.Text()); err != nil || again.Text() != p.Text() {
			t.Fatalf("Parse(%q) = %v, %v: not the same again", p.Text(), again, err)
		}
		want := naive(t, kind, p.Text()).MatchString(text)
		if p.Match(text) != want {
			t.Fatalf("%q: Match(%q) = %v, want %v; needs %q", expr, text, !want, want, p.Needs())
		}
		got, err := setOf(t, []*Pattern{p}).Match(nil, text)
		if err != nil || (len(got) == 1) != want {
			t.Fatalf("%q in a set: Match(%q) = %v, %v, want %v", expr, text, got, err, want)
		}
	})
}

func TestSetIsSharedByGoroutines(t *testing.T) {
	set := setOf(t, realistic(t, 500))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 500 {
				got, err := set.Match(nil, fmt.Sprintf("x@mx.bulk-%d-7.example", i))
				if err != nil || i%4 == 0 && len(got) == 0 {
					t.Errorf("Match %d = %v, %v", i, got, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestSetRefusesWhatParseRefuses(t *testing.T) {
	set := NewSet([]Stored{{Regexp, "(", Need{"abc"}}})
	if got, err := set.Match(nil, "abc@x.test"); err == nil || len(got) > 0 {
		t.Errorf("Match = %v, %v, want an error", got, err)
	}
	testkit.Equal(t, "Match", len(testkit.Value(set.Match(nil, "x@x.test"))(t)), 0)
}

func TestSetKeepsWhatMemoryAllows(t *testing.T) {
	patterns := realistic(t, 8)
	set := setOf(t, patterns)
	set.room.Store(0)
	for range 3 {
		if got, err := set.Match(nil, "x@mx.bulk-4-17.example"); err != nil || !reflect.DeepEqual(got, []int{4}) {
			t.Errorf("Match = %v, %v, want [4]", got, err)
		}
	}
	if set.items[4].compiled.Load() != nil || set.room.Load() != 0 {
		t.Errorf("a compiled expression is kept without room; room %d", set.room.Load())
	}
}

// realistic makes patterns as administrators write them.
func realistic(t testing.TB, n int) []*Pattern {
	t.Helper()
	patterns := make([]*Pattern, n)
	for i := range patterns {
		kind, text := Regexp, ""
		switch i % 4 {
		case 0:
			text = fmt.Sprintf(`^.*@.*\.bulk-%d-[0-9]+\.example$`, i)
		case 1:
			text = fmt.Sprintf(`^newsletter[0-9]*@(mx|mail)?%d\.`, i)
		case 2:
			text = fmt.Sprintf(`(promo|offers)-%d[a-z]?@`, i)
		case 3:
			kind, text = Glob, fmt.Sprintf("*@*.shop%d.test", i)
		}
		p := testkit.Value(Parse(kind, text))(t)
		patterns[i] = p
	}
	return patterns
}

// crowded is the longest sender, made of texts that patterns of realistic need, in
// the place where they cost most: it has all but the digits that should follow.
func crowded(n int) string {
	var b strings.Builder
	b.WriteString("newsletter@a")
	for i := n - n%4; b.Len() < 230; i -= 4 {
		fmt.Fprintf(&b, ".bulk-%d-", i)
	}
	return b.String() + ".x.example"
}

func TestMatchDoesNotAllocate(t *testing.T) {
	const n = 2000
	set := setOf(t, realistic(t, n))
	for _, text := range []string{"anna.maria@mail.firm.test", crowded(n - 4), strings.Repeat("newsletter", 24) + "@x.example"} {
		dst := make([]int, 0, 8)
		run := func() {
			if got, err := set.Match(dst, text); err != nil || len(got) > 0 {
				t.Fatalf("Match(%s) = %v, %v", text, got, err)
			}
		}
		if allocs := testing.AllocsPerRun(100, run); allocs != 0 && !race.Enabled {
			t.Errorf("Match(%s): %v allocations", text, allocs)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	const n = 10_000
	set := setOf(b, realistic(b, n))
	for _, bm := range []struct{ name, text string }{
		{"clear", "anna.maria@mail.firm.test"},
		{"shares a word", "newsletter-17@news.shop.example"},
		{"match", "x@mx.bulk-400-17.example"},
		{"longest", strings.Repeat("anna.maria-", 20) + "@mail.firm.test"},
		{"many literals", crowded(n - 4)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			defer testkit.ReportCPU(b)()
			var dst []int
			for b.Loop() {
				dst, _ = set.Match(dst[:0], bm.text)
			}
		})
	}
}

func BenchmarkNewSet(b *testing.B) {
	patterns := realistic(b, 10_000)
	stored := make([]Stored, len(patterns))
	for i, need := range Choose(patterns) {
		stored[i] = Stored{patterns[i].Kind(), patterns[i].Text(), need}
	}
	b.ReportAllocs()
	defer testkit.ReportCPU(b)()
	for b.Loop() {
		NewSet(stored)
	}
}
