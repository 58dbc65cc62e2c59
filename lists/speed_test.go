package lists_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

// madeAddresses writes n addresses of 37 octets in the mean, as lists of senders have them.
func madeAddresses(tb testing.TB, n int) string {
	tb.Helper()
	return makeList(tb, n, func(rng *rand.Rand) string {
		return fmt.Sprintf("%s%s.%s%d@%s%s.%s", syllables(rng, 2), syllables(rng, 1), syllables(rng, 2), rng.IntN(1e5),
			syllables(rng, 3), []string{"", "-in"}[rng.IntN(2)], []string{"com", "example", "info", "net", "de"}[rng.IntN(5)])
	})
}

func syllables(rng *rand.Rand, n int) (text string) {
	for range n {
		text += []string{"el", "mon", "rod", "kater", "an", "ria", "gop", "in", "benz", "la"}[rng.IntN(10)]
	}
	return text
}

func makeList(tb testing.TB, n int, line func(*rand.Rand) string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "list.txt")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	w, rng := bufio.NewWriter(f), rand.New(rand.NewPCG(1, 2))
	for range n {
		fmt.Fprintln(w, line(rng))
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	return path
}

// benchmarkRead reports the time a line, on the clock and of the cores.
func benchmarkRead(b *testing.B, path, format string, guard *lists.Guard, workers int) {
	info, err := os.Stat(path)
	if err != nil {
		b.Skip(err)
	}
	b.SetBytes(info.Size())
	b.ReportAllocs()
	lines, cpu := 0, testkit.CPUTime(b)
	for b.Loop() {
		var sum lists.Summary
		if s := (lists.Settings{Format: format, Guard: guard}); workers == 0 {
			sum, err = lists.ReadFile(b.Context(), path, s, func(*lists.Item) error { return nil })
		} else {
			sum, err = lists.ReadBlocks(b.Context(), path, s, workers, func(int, *lists.Item) error { return nil })
		}
		if err != nil {
			b.Fatal(err)
		}
		lines += sum.Lines
	}
	b.ReportMetric(float64(testkit.CPUTime(b)-cpu)/float64(lines), "cpu-ns/line")
	b.ReportMetric(float64(b.Elapsed())/float64(lines), "ns/line")
}

// BenchmarkReadPlain reads a million made-up addresses, and a million real names.
func BenchmarkReadPlain(b *testing.B) {
	guard := newGuard(b, lists.DefaultGuard())
	b.Run("addresses", func(b *testing.B) { benchmarkRead(b, madeAddresses(b, 1_000_000), "plain", guard, 0) })
	b.Run("domains", func(b *testing.B) { benchmarkRead(b, data(b, realDomains), "plain", guard, 0) })
}

// BenchmarkReadEntries reads a million sorted addresses in the format entries, and the same in the plain one.
func BenchmarkReadEntries(b *testing.B) {
	var text bytes.Buffer
	w, err := lists.NewWriter(&text, "entries", "")
	if err != nil {
		b.Fatal(err)
	}
	_, err = lists.ReadFile(b.Context(), madeAddresses(b, 1_000_000), lists.Settings{Format: "plain"}, func(it *lists.Item) error {
		_, err := w.Write(it)
		return err
	})
	if err := errors.Join(err, w.Close()); err != nil {
		b.Fatal(err)
	}
	var keys, rows bytes.Buffer
	for n, line := range bytes.Split(text.Bytes()[len(lists.EntriesHead)+1:], []byte("\n")) {
		key, rest, _ := bytes.Cut(line, []byte("\t"))
		fmt.Fprintf(&keys, "%s\n", key)
		if len(rest) > 0 {
			fmt.Fprintf(&rows, "%s\tb\tx\t1893456000\t%d\tby the abuse desk\n", key, n)
		}
	}
	guard := newGuard(b, lists.DefaultGuard())
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("plain/%d", workers), func(b *testing.B) {
			benchmarkRead(b, testkit.File(b, "list", keys.String()), "plain", guard, workers)
		})
		b.Run(fmt.Sprintf("entries/%d", workers), func(b *testing.B) {
			benchmarkRead(b, testkit.File(b, "list", text.String()), "entries", guard, workers)
		})
		b.Run(fmt.Sprintf("rows of a table/%d", workers), func(b *testing.B) {
			benchmarkRead(b, testkit.File(b, "list", lists.EntriesHead+"\n"+rows.String()), "entries", guard, workers)
		})
	}
}

const realDomains = "union-domains.txt.gz"

// BenchmarkReadBlocks reads the same with workers.
func BenchmarkReadBlocks(b *testing.B) {
	guard := newGuard(b, lists.DefaultGuard())
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("addresses/%d", workers), func(b *testing.B) {
			benchmarkRead(b, madeAddresses(b, 1_000_000), "plain", guard, workers)
		})
		b.Run(fmt.Sprintf("domains/%d", workers), func(b *testing.B) {
			benchmarkRead(b, data(b, realDomains), "plain", guard, workers)
		})
	}
}
