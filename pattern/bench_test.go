package pattern

import (
	"strings"
	"syscall"
	"testing"
)

// reportCPU reports what an operation takes of a core, which others on the machine
// hardly change. Call it, and what it returns at the end.
func reportCPU(b *testing.B) func() {
	used := func() int64 {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return r.Utime.Nano() + r.Stime.Nano()
	}
	begin := used()
	return func() { b.ReportMetric(float64(used()-begin)/float64(b.N), "cpu-ns/op") }
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
			defer reportCPU(b)()
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
	defer reportCPU(b)()
	for b.Loop() {
		NewSet(stored)
	}
}

// BenchmarkOneByOne is what a Set is better than.
func BenchmarkOneByOne(b *testing.B) {
	patterns := realistic(b, 10_000)
	defer reportCPU(b)()
	for b.Loop() {
		for _, p := range patterns {
			if p.kind == Regexp {
				p.re.MatchString("anna.maria@mail.firm.test")
			} else {
				p.glob.match("anna.maria@mail.firm.test")
			}
		}
	}
}

// BenchmarkParse is a pattern's share of the build, and of its first candidate.
func BenchmarkParse(b *testing.B) {
	defer reportCPU(b)()
	for b.Loop() {
		Parse(Regexp, `^.*@.*\.bulk-17-[0-9]+\.example$`)
	}
}
