package s3

import (
	"fmt"
	"strings"
	"testing"

	"blockd/lists"
	"blockd/sources/mirror/mirrortest"
)

// BenchmarkObject reads an object of so many lines, and then asks whether anything has changed. BLOCKD_TEST_ROWS gives their number.
func BenchmarkObject(b *testing.B) {
	n := mirrortest.BenchRows(100_000)
	var text strings.Builder
	for i := range n {
		x := uint64(i) * 0x9E3779B97F4A7C15
		fmt.Fprintf(&text, "user.%x@mail%d.bulk.example\n", x>>24, x>>44)
	}
	store := newStore(b)
	store.put(b, "list", text.String())
	s := mustOpen(b, Options{DSN: store.url("list"), Settings: lists.Settings{Format: "plain"}, Folder: b.TempDir()})
	mirrortest.Benchmark(b, s, n, nil)
}
