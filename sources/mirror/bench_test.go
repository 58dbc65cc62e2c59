package mirror

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"blockd/internal/testkit"
)

// made is a source of so many addresses, in an order of their own, and of one change.
type made int

func (made) Fingerprint(context.Context) (string, error) { return "made", nil }
func (made) Wait(ctx context.Context) error              { return ctx.Err() }

func (n made) All(_ context.Context, yield func(Row) error) (Mark, error) {
	for i := range int(n) {
		x := uint64(i) * 0x9E3779B97F4A7C15
		if err := yield(Row{Entry: fmt.Sprintf("user.%x@mail%d.bulk.example", x>>24, x>>44), ID: strconv.Itoa(i)}); err != nil {
			return "", err
		}
	}
	return "0", nil
}

func (made) Changes(_ context.Context, since Mark, yield func(Change) error) (Mark, error) {
	n, _ := strconv.Atoi(string(since))
	entry := fmt.Sprintf("new%d@bulk.example", n)
	return Mark(strconv.Itoa(n + 1)), yield(Change{Entry: entry, Rows: []Row{{Entry: entry}}})
}

// BenchmarkCopy reads so many rows, and then takes changes in, one at a time. BLOCKD_TEST_ROWS gives their number.
func BenchmarkCopy(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("BLOCKD_TEST_ROWS"))
	if err != nil {
		n = 1_000_000
	}
	m, err := Open(Options{Folder: filepath.Join(b.TempDir(), "copy")})
	testkit.Must(b, err)
	defer m.Close()
	var stats runtime.MemStats
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.Read(b.Context(), made(n)); err != nil {
				b.Fatal(err)
			}
		}
		runtime.ReadMemStats(&stats)
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/row")
		b.ReportMetric(float64(stats.HeapSys-stats.HeapReleased)/(1<<20), "MiB-heap")
	})
	b.Run("change", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.Follow(b.Context(), made(n)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
