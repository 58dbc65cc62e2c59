package redis

import (
	"context"
	"fmt"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"blockd/sources/mirror/mirrortest"
)

// BenchmarkRead reads a list of a million entries of 37 octets into a copy, and takes changes in. BLOCKD_TEST_ROWS gives another
// number, in thousands.
func BenchmarkRead(b *testing.B) {
	n := mirrortest.BenchRows(1_000_000) / 1000 * 1000
	r, c := server(b)
	o := Options{DSN: r.URL(), List: "bench"}
	w := newWriter(b, c, o)
	w.do("put", "sender000000000@bulk000000.test.example", "block\t\t4711\tsold addresses")
	for i := 0; i < n; i += 1000 {
		if _, err := c.Pipelined(b.Context(), func(p goredis.Pipeliner) error {
			var all []any
			for n := i; n < i+1000; n++ {
				all = append(all, fmt.Sprintf("sender%09d@bulk%06d.test.example", n, n%99991), "block\t\t4711\tsold addresses")
			}
			return p.HSet(context.Background(), keysOf(o)[0].entries, all...).Err()
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() { c.Del(context.Background(), keysOf(o)[0].entries) })
	mirrortest.Benchmark(b, open(b, o), n, func(i int) { w.do("put", fmt.Sprintf("new%d.example", i), "") })
}
