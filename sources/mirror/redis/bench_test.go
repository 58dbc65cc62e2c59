package redis

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/sources/mirror"
)

// million is a list of a million entries of 37 octets.
func million(b *testing.B, list string) (Options, *writer) {
	r, c := server(b)
	o := Options{DSN: r.URL(), List: list}
	w := newWriter(b, c, o)
	w.do("put", "first.example", "")
	for i := 0; i < 1_000_000; i += 1000 {
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
	return o, w
}

// BenchmarkAll reads a million entries.
func BenchmarkAll(b *testing.B) {
	o, _ := million(b, "bench all")
	s := open(b, o)
	for b.Loop() {
		n := 0
		if _, err := s.All(b.Context(), func(mirror.Row) error { n++; return nil }); err != nil || n < 1_000_000 {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkChange is from a change to the files of the copy of a million; with the heap of a full read.
func BenchmarkChange(b *testing.B) {
	o, w := million(b, "bench change")
	s := open(b, o)
	m, err := mirror.Open(mirror.Options{Folder: filepath.Join(b.TempDir(), "copy")})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	var peak atomic.Uint64
	ended := make(chan struct{})
	go func() {
		for tick := time.Tick(50 * time.Millisecond); ; {
			select {
			case <-tick:
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				peak.Store(max(peak.Load(), now.HeapInuse))
			case <-ended:
				return
			}
		}
	}()
	start := time.Now()
	if _, err := m.Read(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	close(ended)
	took := time.Since(start)
	for i := 0; b.Loop(); i++ {
		heard := make(chan error, 1)
		go func() { heard <- s.Wait(b.Context()) }()
		w.do("put", fmt.Sprintf("new%d.example", i), "")
		if err := <-heard; err != nil {
			b.Fatal(err)
		}
		if told, err := m.Follow(b.Context(), s); err != nil || !told.Changed {
			b.Fatal(told, err)
		}
	}
	b.ReportMetric(took.Seconds(), "s/fullread")
	b.ReportMetric(float64(peak.Load())/(1<<20), "MiB")
}
