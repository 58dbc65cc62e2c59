package overlap

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
)

// slow is Run as one would write it down, over plain lists.
func slow(t *testing.T, a, b index.Source) (r Result) {
	t.Helper()
	type name struct{ kind, text string }
	type entry struct {
		name
		scope  lists.Scope
		action lists.Action
	}
	var has [2]map[entry]bool
	var names [2]map[name]bool
	for i, side := range []index.Source{a, b} {
		has[i], names[i] = map[entry]bool{}, map[name]bool{}
		facts := []*SideFacts{&r.A, &r.B}[i]
		_, err := lists.ReadFile(t.Context(), side.Path, side.Settings, func(it *lists.Item) error {
			switch it.Kind {
			case lists.Skip:
				return nil
			case lists.Err:
				facts.Refused++
				return nil
			}
			facts.Entries++
			n := name{Kinds()[kindOf(it)], strings.Clone(it.Name())}
			has[i][entry{n, it.Scope, it.Action}], names[i][n] = true, true
			return nil
		})
		testkit.Must(t, err)
	}
	counts := map[string]*Counts{}
	for _, kind := range Kinds() {
		counts[kind] = &Counts{}
	}
	for i := range has {
		for e := range has[i] {
			c := counts[e.kind]
			only, other := &c.OnlyA, &c.OtherA
			if i == 1 {
				only, other = &c.OnlyB, &c.OtherB
			}
			switch {
			case has[1-i][e] && i == 0:
				c.Both++
			case has[1-i][e]:
			default:
				if *only++; names[1-i][e.name] {
					*other++
				}
			}
		}
	}
	r.Scale, r.Kinds = 1, []KindCounts{}
	for _, kind := range Kinds() {
		if *counts[kind] != (Counts{}) {
			r.Kinds = append(r.Kinds, KindCounts{kind, *counts[kind]})
		}
	}
	return r
}

// anyList has n lines of all kinds from a small set, some of them repeated or refused.
func anyList(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		k := r.IntN(4 * n / 3)
		line := []string{"u%d@bad%[1]d.example", "bad%d.example", "=bad%d.example", "!bad%d.example", "offers%d@", "10.0.%d.7", "10.%d.0.0/16",
			"*@*%d-mail.example", "/^spam[0-9]+%d@/", "Bad%d.EXAMPLE", "no entry %d", "# %d"}[r.IntN(12)]
		if strings.HasPrefix(line, "10") {
			k %= 250
		}
		fmt.Fprintf(&b, line+"\n", k)
	}
	return b.String()
}

func source(t *testing.T, name, text string) index.Source {
	s := indexes.Source(t, name, text)
	s.Settings.Format, s.Settings.Patterns = "plain", true
	return s
}

// TestRun holds Run against the slow one, in memory and through a file, with lists and with the
// indexes of these lists.
func TestRun(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 4 {
		a, b := source(t, "a", anyList(r, 1+r.IntN(3000))), source(t, "b", anyList(r, 1+r.IntN(3000)))
		want := slow(t, a, b)
		if round == 0 && (len(want.Kinds) != len(Kinds()) || want.Total().OtherA == 0) {
			t.Fatalf("the lists have too little: %+v", want)
		}
		for _, memory := range []int64{MinMemory, 8 << 10, 20 << 10} {
			job := Job{Sides: [2]Side{{Files: []index.Source{a}}, {Files: []index.Source{b}}}, Memory: memory}
			if got, err := job.Run(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("round %d, %d octets: %+v, %v, want %+v", round, memory, got, err, want)
			}
			job.Sides[1] = Side{Index: indexes.BuildAt(t, filepath.Join(t.TempDir(), "b.bdx"), b)}
			got, err := job.Run(t.Context())
			got.B = want.B
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("round %d, against an index: %+v, %v, want %+v", round, got, err, want)
			}
		}
	}
}

// TestSample holds the counts of a sample within four times the error that is told, which a seed
// misses once in 10^14, and that repeated lines weigh nothing.
func TestSample(t *testing.T) {
	s := sample{most: 4096}
	var both, onlyA uint64 = 60_000, 30_000
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, seed))
	for i := range both + onlyA {
		p := print{r.Uint64(), r.Uint64() >> nameAt << nameAt}
		s.addAll([]print{p})
		if i%3 == 0 {
			s.addAll([]print{p, p})
		}
		if i < both {
			p.lo |= sideBit
			s.addAll([]print{p})
		}
	}
	result := Result{Scale: 1 << s.level}
	c := counter{scale: result.Scale}
	if err := s.each(t.Context(), c.add); err != nil || len(s.prints) >= s.most {
		t.Fatalf("%d prints, %v", len(s.prints), err)
	}
	c.endName()
	got := c.all[0]
	for _, n := range [][2]uint64{{got.Both, both}, {got.OnlyA, onlyA}, {got.OnlyB, 0}} {
		if off := math.Abs(float64(n[0]) - float64(n[1])); off > 4*float64(result.Error(n[0])) || result.Scale < 16 {
			t.Errorf("seed %d: %d, want %d ± %d, of a sample of one in %d", seed, n[0], n[1], result.Error(n[0]), result.Scale)
		}
	}
}

// TestSmallSampleIsExact: what has room is counted whole.
func TestSmallSampleIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	a, b := source(t, "a", anyList(r, 500)), source(t, "b", anyList(r, 700))
	job := Job{Sides: [2]Side{{Files: []index.Source{a}}, {Files: []index.Source{b}}}, Approximate: true}
	got, err := job.Run(t.Context())
	want := slow(t, a, b)
	want.Sampled = got.Sampled
	if err != nil || !reflect.DeepEqual(got, want) || got.Error(1) != 0 || got.Sampled == 0 {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
}

// TestEndedEntriesAreNone: a list with entries that have ended has what the index of it has.
func TestEndedEntriesAreNone(t *testing.T) {
	a := indexes.Source(t, "a", "#blockd-entries 1\na.example\tb\tt\t\t\t\nb.example\tb\tt\t1\t\t\nc.example\tb\tt\t9999999999\t\t\n")
	a.Settings.Format = "entries"
	list, built := Side{Files: []index.Source{a}}, Side{Index: indexes.BuildAt(t, filepath.Join(t.TempDir(), "a.bdx"), a)}
	want := Result{A: SideFacts{Entries: 2}, B: SideFacts{Entries: 2}, Kinds: []KindCounts{{"domain", Counts{Both: 2}}}, Scale: 1}
	for _, sides := range [][2]Side{{list, built}, {built, list}} {
		got, err := Job{Sides: sides, Memory: MinMemory}.Run(t.Context())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}

func TestRunFails(t *testing.T) {
	a := source(t, "a", strings.Repeat("a.example\n", 5000))
	job := Job{Sides: [2]Side{{Files: []index.Source{a}}, {Files: []index.Source{a}}}, Memory: 4 << 10}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Fails(job.Run(ctx))(t, "an ended context", context.Canceled)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	t.Setenv("TMPDIR", nowhere)
	testkit.Got(job.Run(t.Context()))(t, "no folder for the temporary file", "…", "…temporary file in "+nowhere+"…")
	b := a
	b.Path += ".none"
	job = Job{Sides: [2]Side{{Files: []index.Source{a}}, {Files: []index.Source{b}}}, Memory: MinMemory}
	testkit.Got(job.Run(t.Context()))(t, "a missing file", "…", "…missing…")
}
