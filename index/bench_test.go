package index

import (
	"fmt"
	"path/filepath"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

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
