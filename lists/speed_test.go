package lists_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

// madeAddresses writes n addresses of 37 octets in the mean, as lists of senders have them.
func madeAddresses(tb testing.TB, n int) string {
	tb.Helper()
	var text bytes.Buffer
	rng := rand.New(rand.NewPCG(1, 2))
	for range n {
		fmt.Fprintf(&text, "%s%s.%s%d@%s%s.%s\n", syllables(rng, 2), syllables(rng, 1), syllables(rng, 2), rng.IntN(1e5),
			syllables(rng, 3), []string{"", "-in"}[rng.IntN(2)], []string{"com", "example", "info", "net", "de"}[rng.IntN(5)])
	}
	return testkit.File(tb, "list.txt", text.Bytes())
}

func syllables(rng *rand.Rand, n int) (text string) {
	for range n {
		text += []string{"el", "mon", "rod", "kater", "an", "ria", "gop", "in", "benz", "la"}[rng.IntN(10)]
	}
	return text
}

// BenchmarkReadBlocks reads a million made-up addresses, and a million real names. It reports
// the time a line, on the clock and of the cores.
func BenchmarkReadBlocks(b *testing.B) {
	s := lists.Settings{Format: "plain", Guard: newGuard(b, lists.DefaultGuard())}
	for name, path := range map[string]string{"addresses": madeAddresses(b, 1_000_000), "domains": data(b, "union-domains.txt.gz")} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", name, workers), func(b *testing.B) {
				b.ReportAllocs()
				lines, cpu := 0, testkit.CPUTime(b)
				for b.Loop() {
					sum := testkit.Value(lists.ReadBlocks(b.Context(), path, s, workers, func(int, *lists.Item) error { return nil }))(b)
					lines += sum.Lines
				}
				b.ReportMetric(float64(testkit.CPUTime(b)-cpu)/float64(lines), "cpu-ns/line")
				b.ReportMetric(float64(b.Elapsed())/float64(lines), "ns/line")
			})
		}
	}
}
