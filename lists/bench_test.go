package lists_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"blockd/lists"
)

// BenchmarkReadFile reads a million made-up entries of about 30 octets.
func BenchmarkReadFile(b *testing.B) {
	const n = 1_000_000
	for _, tt := range []struct {
		name, format string
		line         func(user, host uint32) string
	}{
		{"plain/addresses", "plain", func(u, h uint32) string { return fmt.Sprintf("user.%x@mail%d.bulk.example", u, h) }},
		{"plain/domains", "plain", func(u, h uint32) string { return fmt.Sprintf("n%x.host%d.bulk.example", u, h) }},
		{"plain/client addresses", "plain", func(u, _ uint32) string {
			return fmt.Sprintf("%d.%d.%d.%d", 1+u>>24&127, u>>16&255, u>>8&255, u&255)
		}},
		{"hosts", "hosts", func(u, h uint32) string { return fmt.Sprintf("0.0.0.0 n%x.host%d.bulk.example", u, h) }},
		{"adblock", "adblock", func(u, h uint32) string { return fmt.Sprintf("||n%x.host%d.bulk.example^", u, h) }},
		{"postfix", "postfix", func(u, h uint32) string { return fmt.Sprintf("n%x.host%d.bulk.example REJECT spam", u, h) }},
		{"rbldnsd", "rbldnsd", func(u, h uint32) string { return fmt.Sprintf(".n%x.host%d.bulk.example :2:see $", u, h) }},
		{"rpz", "rpz", func(u, h uint32) string { return fmt.Sprintf("n%x.host%d.bulk.example CNAME .", u, h) }},
		{"spamassassin", "spamassassin", func(u, h uint32) string {
			return fmt.Sprintf("blocklist_from *@n%x.host%d.bulk.example", u, h)
		}},
		{"csv", "csv", func(u, h uint32) string { return fmt.Sprintf("user.%x@mail%d.bulk.example,spam", u, h) }},
	} {
		b.Run(tt.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "list")
			f, err := os.Create(path)
			if err != nil {
				b.Fatal(err)
			}
			w, rng := bufio.NewWriter(f), rand.New(rand.NewPCG(1, 2))
			for range n {
				fmt.Fprintln(w, tt.line(rng.Uint32(), rng.Uint32N(1<<20)))
			}
			if err := w.Flush(); err != nil {
				b.Fatal(err)
			}
			if info, err := f.Stat(); err == nil {
				b.SetBytes(info.Size())
			}
			f.Close()
			b.ReportAllocs()
			for b.Loop() {
				sum, err := lists.ReadFile(b.Context(), path, lists.Settings{Format: tt.format}, func(*lists.Item) error { return nil })
				if err != nil || sum.Entries != n {
					b.Fatalf("%d entries, %v", sum.Entries, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/line")
		})
	}
}
