package s3

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
)

// BenchmarkObject reads an object of so many lines, and then asks whether anything has changed. BLOCKD_TEST_ROWS gives their number.
func BenchmarkObject(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("BLOCKD_TEST_ROWS"))
	if err != nil {
		n = 100_000
	}
	var text strings.Builder
	for i := range n {
		x := uint64(i) * 0x9E3779B97F4A7C15
		fmt.Fprintf(&text, "user.%x@mail%d.bulk.example\n", x>>24, x>>44)
	}
	store := newStore(b)
	store.put(b, "list", text.String())
	s := mustOpen(b, Options{DSN: store.url("list"), Settings: lists.Settings{Format: "plain"}, Folder: b.TempDir()})
	m, err := mirror.Open(mirror.Options{Folder: filepath.Join(b.TempDir(), "copy")})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	b.Run("read", func(b *testing.B) {
		peak := testkit.PeakHeap()
		for b.Loop() {
			if told, err := m.Read(b.Context(), s); err != nil || told.Entries != int64(n) {
				b.Fatalf("%+v, %v", told, err)
			}
		}
		b.ReportMetric(float64(peak())/(1<<20), "MiB-heap") // above that of the store, which is in this process
	})
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.Follow(b.Context(), s); err != nil {
				b.Fatal(err)
			}
		}
	})
}
