package bloom

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
)

// tenMillion is a filter of 10 M keys at 12 bits, made once: 15 MB.
var tenMillion = sync.OnceValue(func() *Filter {
	const n = 10_000_000
	b := NewBuilder(n, DefaultBitsPerKey)
	var key [20]byte
	var batch [BatchSize]Hash
	for i := 0; i < n; i += BatchSize {
		for j := range batch {
			binary.LittleEndian.PutUint64(key[:], uint64(i+j))
			batch[j] = testSeed.Sum(key[:])
		}
		b.AddBatch(batch[:])
	}
	return b.Filter()
})

// absentKeys are 2^20 keys of 20 octets that the filter does not hold, 20 MB.
var absentKeys = sync.OnceValue(func() [][20]byte {
	keys := make([][20]byte, 1<<20)
	for i := range keys {
		binary.LittleEndian.PutUint64(keys[i][:], 1<<40+uint64(i))
	}
	return keys
})

// The figures of both are per key and include the hashing.
func BenchmarkHas(b *testing.B) {
	f, keys := tenMillion(), absentKeys()
	found := 0
	for i := 0; b.Loop(); i++ {
		if f.Has(testSeed.Sum(keys[i&(len(keys)-1)][:])) {
			found++
		}
	}
	b.ReportMetric(100*float64(found)/float64(b.N), "%perhaps")
}

func BenchmarkHasBatch(b *testing.B) {
	f, keys := tenMillion(), absentKeys()
	b.Run("absent,10M", func(b *testing.B) {
		var batch [BatchSize]Hash
		found := uint32(0)
		for i := 0; i < b.N; i += BatchSize {
			for j := range batch {
				batch[j] = testSeed.Sum(keys[(i+j)&(len(keys)-1)][:])
			}
			found += f.HasBatch(batch[:]) & 1
		}
		b.ReportMetric(100*BatchSize*float64(found)/float64(b.N), "%perhaps")
	})
	b.Run("absent,10M,parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			var batch [BatchSize]Hash
			for i, j := 0, 0; pb.Next(); i++ {
				batch[j] = testSeed.Sum(keys[i&(len(keys)-1)][:])
				if j++; j == BatchSize {
					f.HasBatch(batch[:])
					j = 0
				}
			}
		})
	})
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var batch [BatchSize]Hash
			var key [20]byte
			for b.Loop() {
				fb := NewBuilder(uint64(n), DefaultBitsPerKey)
				for i := 0; i < n; i += BatchSize {
					for j := range batch {
						binary.LittleEndian.PutUint64(key[:], uint64(i+j))
						batch[j] = testSeed.Sum(key[:])
					}
					fb.AddBatch(batch[:])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/key")
		})
	}
}
