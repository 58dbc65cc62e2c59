package pattern

import (
	"strings"
	"testing"

	"blockd/internal/testkit"
)

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

// BenchmarkOneByOne is what a Set is better than.
func BenchmarkOneByOne(b *testing.B) {
	patterns := realistic(b, 10_000)
	defer testkit.ReportCPU(b)()
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
	defer testkit.ReportCPU(b)()
	for b.Loop() {
		Parse(Regexp, `^.*@.*\.bulk-17-[0-9]+\.example$`)
	}
}
