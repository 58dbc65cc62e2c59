package postgres

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit/postgresserver"
	"blockd/sources/mirror"
	"blockd/sources/mirror/query"
)

// BenchmarkRead reads a table of so many rows: COPY and nothing else, COPY as rows, and into a copy. BLOCKD_TEST_ROWS gives their
// number.
func BenchmarkRead(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("BLOCKD_TEST_ROWS"))
	if err != nil {
		n = 100_000
	}
	server, err := postgresserver.Open()
	if err != nil {
		b.Skip(err)
	}
	defer server.Close()
	server.Exec(b, "postgres", fmt.Sprintf(`create unlogged table senders as
		select i as id, 'user.' || substr(md5(i::text), 1, 10) || '@mail' || i %% 100000 || '.bulk.example' as entry from generate_series(1, %d) as i`, n))
	s, err := Open(Options{DSN: server.URL("postgres", "postgres"), Query: "select entry, id from senders", Changes: query.None})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	per := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/row")
		b.ReportMetric(peak(b), "MiB-peak")
	}
	b.Run("rows", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.All(b.Context(), func(mirror.Row) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		per(b)
	})
	b.Run("copy", func(b *testing.B) {
		for b.Loop() {
			m, err := mirror.Open(mirror.Options{Folder: b.TempDir() + "/copy"})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := m.Read(b.Context(), s); err != nil {
				b.Fatal(err)
			}
			m.Close()
		}
		per(b)
	})
}

// peak is the most memory that this process had, in MiB.
func peak(b *testing.B) float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return float64(kib) / 1024
}
