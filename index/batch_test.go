package index

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/mail/addr"
)

// sameAsLookup asks for all senders in one batch and one by one.
func sameAsLookup(t *testing.T, what string, ix *Index, b *Batch, senders []addr.Addr) {
	t.Helper()
	ix.LookupBatch(b, senders, testTime)
	for i, a := range senders {
		want, wantErr := ix.Lookup(nil, a, testTime)
		got, err := b.Matches(i)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: sender %d of %d, %s:\nbatch  %v, %v\nLookup %v, %v", what, i, len(senders), a, got, err, want, wantErr)
		}
	}
}

func TestBatchAgreesWithLookup(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() || race.Enabled {
		seeds = 6
	}
	var b Batch // one for all: nothing may stay behind
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		rows := 1 + rng.IntN(20)
		o := seeded(byte(seed))
		o.SipHash = seed%2 == 1
		ix := indexOf(t, o, rowsNamed(rows), randomEntries(t, rng, rows, rng.IntN(1500)))
		for _, state := range []string{"filter in the mapping", "filter in memory", "filter always says perhaps"} {
			switch state {
			case "filter in memory":
				testkit.Must(t, ix.Promote(t.Context()))
			case "filter always says perhaps":
				allPerhaps(t, ix)
			}
			for _, size := range []int{0, 1, 2, 7, 8, 31, 33, 200} {
				senders := make([]addr.Addr, size)
				for i := range senders {
					if rng.IntN(10) > 0 { // else the null sender, which has no keys
						senders[i] = sender(t, randomSender(rng))
					}
				}
				sameAsLookup(t, fmt.Sprintf("seed %d, %s", seed, state), ix, &b, senders)
			}
		}
	}
}

// A page that cannot be read is an error of the senders that need it, and of
// nobody else in their batch.
func TestBatchErrorIsTheSendersOwn(t *testing.T) {
	const n = 3000
	built := indexOf(t, seeded(1), rowsNamed(1), manyDomains(n))
	path, s := built.mapping.name, built.file.Sections[format.SecPages]
	f := testkit.Value(os.OpenFile(path, os.O_RDWR, 0))(t)
	defer f.Close()
	for page := uint64(0); page < s.Items; page += 10 {
		testkit.Value(f.WriteAt([]byte{0xff, 0xff, 0xff}, int64(s.Offset+page*format.PageSize+format.PageSize-8)))(t)
	}
	ix := opened(t, path)
	senders := make([]addr.Addr, n)
	for i := range senders {
		senders[i] = sender(t, "x@mx."+manyName(i))
	}
	var b Batch
	sameAsLookup(t, "damaged pages", ix, &b, senders)
	failed := 0
	for i := range senders {
		got, err := b.Matches(i)
		switch {
		case err == nil && (len(got) != 1 || got[0].Line != i+1):
			t.Fatalf("sender %d: %v", i, got)
		case err != nil && !errors.Is(err, ErrRead):
			t.Fatalf("sender %d: %v", i, err)
		case err != nil:
			failed++
		}
	}
	testkit.AtLeast(t, "senders that failed, with every tenth page damaged", failed, n/20)
	testkit.AtMost(t, "senders that failed, with every tenth page damaged", failed, n/5)
}

func TestClearBatchAllocatesNothing(t *testing.T) {
	ix := indexOf(t, seeded(1), rowsNamed(1), append(manyDomains(1000), randomEntries(t, rand.New(rand.NewPCG(1, 1)), 1, 500)...))
	senders := make([]addr.Addr, 300)
	for i := range senders {
		senders[i] = sender(t, fmt.Sprintf("someone%d@mail%d.example.org", i, i))
	}
	var b Batch
	ask := func() {
		ix.LookupBatch(&b, senders, testTime)
		for i := range senders {
			if got, err := b.Matches(i); err != nil || len(got) > 0 {
				t.Fatalf("sender %d: %v, %v", i, got, err)
			}
		}
	}
	measure := func(state string) {
		ask() // makes room
		testkit.Equal(t, fmt.Sprintf("%s: a batch of %d clear senders allocates: times", state, len(senders)), allocations(ask), 0)
	}
	measure("filter in the mapping")
	testkit.Must(t, ix.Promote(t.Context()))
	measure("filter in memory")
	allPerhaps(t, ix)
	measure("filter always says perhaps")
}

// benchSize is the number of domains, of 21 octets on average.
const benchSize = 1_000_000

func benchName(i int) string { return fmt.Sprintf("mail%d.example%d.test", i, i%1000) }

// benchIndex holds benchSize domains as trees; all kinds of keys are asked for.
func benchIndex(b *testing.B) *Index {
	b.Helper()
	entries := make([]listed, 0, benchSize+1)
	local := testkit.Value(addr.LocalKey("offers"))(b)
	for i := range benchSize {
		entries = append(entries, listed{key: addr.Key{Text: benchName(i), Kind: addr.Domain, Labels: 3}, scope: lists.Tree, line: i + 1})
	}
	for labels := range 4 {
		name := "q.q.q.q.test"[2*labels:]
		entries = append(entries, listed{key: domainKey(b, name)})
	}
	address, _ := sender(b, "a@b.test").Key()
	entries = append(entries, listed{key: local, scope: lists.Local}, listed{key: address})
	return indexOf(b, Options{}, rowsNamed(1), entries)
}

// BenchmarkLookup asks for whole senders of five keys, all of them hashed.
func BenchmarkLookup(b *testing.B) {
	ix := benchIndex(b)
	for _, tt := range []struct {
		name    string
		present bool
	}{{"absent", false}, {"present", true}} {
		senders := make([]addr.Addr, 1<<16)
		for i := range senders {
			domain := fmt.Sprintf("mail%d.other%d.test", i, i%1000)
			if tt.present {
				domain = benchName(i * 15)
			}
			senders[i] = sender(b, fmt.Sprintf("someone%d@%s", i, domain))
		}
		run := func(i int, dst []Match) {
			got, err := ix.Lookup(dst, senders[i&(len(senders)-1)], testTime)
			if err != nil || tt.present != (len(got) == 1) {
				b.Fatalf("Lookup = %v, %v", got, err)
			}
		}
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]Match, 0, 4)
			for i := 0; b.Loop(); i++ {
				run(i, dst)
			}
		})
		b.Run(tt.name+",parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				dst := make([]Match, 0, 4)
				for i := 0; pb.Next(); i++ {
					run(i*7, dst)
				}
			})
		})
	}
}

// BenchmarkBuild builds the largest real list there is, from gzip to a checked
// and synced file.
func BenchmarkBuild(b *testing.B) {
	source := plain("union", testkit.Shared(b, "lists/union-domains.txt.gz"))
	for b.Loop() {
		d := testkit.Value(Build(b.Context(), filepath.Join(b.TempDir(), "x.bdx"), []Source{source}, Options{}))(b)
		b.ReportMetric(float64(d.Report.Bytes)/1e6, "MB")
		d.Discard()
	}
}
