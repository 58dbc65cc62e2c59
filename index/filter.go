package index

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"runtime"
	"sync/atomic"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/index/internal/memory"
)

// liveFilter is the filter of an open index. It answers at once from the file's
// mapping, where each chunk is summed when it is first needed, and faster after
// Promote from memory of its own.
type liveFilter struct {
	mapped *bloom.Filter                // over mem; nil on a machine of another byte order
	mem    []byte                       // of the mapping
	at     uint64                       // offset of mem in the file
	sums   []byte                       // of the chunks, u32 each
	good   []uint64                     // one bit a chunk of mem: its sum was right; atomic
	near   atomic.Pointer[bloom.Filter] // nil before Promote
}

// load is for the filter of a mapped file at an offset of it, whose chunks have these sums.
func (s *liveFilter) load(mem []byte, at uint64, sums []byte) {
	s.mem, s.at, s.sums = mem, at, sums
	s.good = make([]uint64, (len(s.sums)/4+63)/64)
	s.mapped, _ = bloom.Over(mem)
}

// perhaps asks the filter for up to bloom.BatchSize keys, bit i for hs[i]. The
// error is that of a chunk in the mapping that cannot be read or is damaged: a
// cleared bit would be a listed sender let through.
func (ix *Index) perhaps(hs []bloom.Hash) (uint32, error) {
	var over, perhaps uint32
	if ix.overlay != nil {
		over = ix.overlay.filter.HasBatch(hs)
	}
	if f := ix.filter.near.Load(); f != nil {
		return f.HasBatch(hs) | over, nil
	}
	err := ix.mapping.guarded(func() error {
		for _, h := range hs {
			if err := ix.filter.check(ix.filter.mapped.Offset(h) / format.ChunkBytes); err != nil {
				return err
			}
		}
		perhaps = ix.filter.mapped.HasBatch(hs)
		return nil
	})
	return perhaps | over, ix.unreadable(err)
}

// check sums a chunk of the mapping at its first touch. Call it guarded.
func (s *liveFilter) check(chunk uint64) error {
	word, bit := &s.good[chunk/64], uint64(1)<<(chunk%64)
	if atomic.LoadUint64(word)&bit != 0 {
		return nil
	}
	if err := s.sum(chunk, s.chunk(chunk)); err != nil {
		return err
	}
	atomic.OrUint64(word, bit)
	return nil
}

func (s *liveFilter) chunks() uint64 { return uint64(len(s.sums) / 4) }

func (s *liveFilter) chunk(n uint64) []byte {
	return s.mem[n*format.ChunkBytes : min((n+1)*format.ChunkBytes, uint64(len(s.mem)))]
}

// sum holds the octets of a chunk, or a copy of them, against its sum.
func (s *liveFilter) sum(chunk uint64, octets []byte) error {
	want := binary.LittleEndian.Uint32(s.sums[4*chunk:])
	if sum := crc32.Checksum(octets, format.Castagnoli); sum != want {
		return format.Corrupt(s.at+chunk*format.ChunkBytes, "filter sum %08x, computed %08x", want, sum)
	}
	return nil
}

// verify sums all chunks of the file anew. Call it guarded.
func (s *liveFilter) verify() error {
	for n := range s.chunks() {
		if err := s.sum(n, s.chunk(n)); err != nil {
			return err
		}
	}
	return nil
}

// Promote copies the filter out of the file into memory of its own, in huge pages
// where the system has them, and checks all of it on the way. Look-ups go on
// meanwhile and are faster afterwards: they need neither sums nor a guard against
// a failing disk, and one translation of an address serves for 2 MiB. The copy
// costs 1.5 MB a million keys, which go with the Index, and 0.5 ms for them. Then
// it asks the system to read ahead what it has not in memory of the store's first
// GiB: a large build writes past the page cache.
//
// Without it the Index is as right. After an error it stays as it was; one of ctx
// ends the copying early.
func (ix *Index) Promote(ctx context.Context) error {
	err := ix.promote(ctx)
	if err == nil {
		ix.mapping.fetch(ctx, ix.pages)
	}
	runtime.KeepAlive(ix)
	return err
}

// promote is Promote without the pages.
func (ix *Index) promote(ctx context.Context) error {
	s := &ix.filter
	if s.near.Load() != nil {
		return nil
	}
	if ix.overlay != nil { // the copy is the file's, for all that share it
		base := ix.overlay.base
		err := base.promote(ctx)
		s.near.Store(base.filter.near.Load())
		return err
	}
	all, mem, err := memory.Huge(len(s.mem))
	if err != nil {
		return fmt.Errorf("memory for the filter: %w", err)
	}
	for n := uint64(0); n < s.chunks() && err == nil; n++ {
		if err = ctx.Err(); err != nil {
			break
		}
		err = ix.unreadable(ix.mapping.guarded(func() error {
			octets := mem[n*format.ChunkBytes:][:len(s.chunk(n))]
			copy(octets, s.chunk(n))
			return s.sum(n, octets)
		}))
	}
	f, _ := bloom.Decode(mem)
	// Of two calls at once one wins; the other's copy is of no use.
	if err != nil || !s.near.CompareAndSwap(nil, f) {
		memory.Unmap(all)
		return err
	}
	runtime.AddCleanup(ix, memory.Unmap, all)
	return nil
}

// SampleFalsePositives measures the rate of FalsePositiveRate, by asking the
// filter for n random keys. The answer is the same at every call.
func (ix *Index) SampleFalsePositives(n int) (rate float64, err error) {
	f := ix.filter.near.Load()
	if f != nil {
		return f.Sample(n, ix.file.Keys), nil
	}
	err = ix.mapping.guarded(func() error {
		rate = ix.filter.mapped.Sample(n, ix.file.Keys)
		return ix.filter.verify()
	})
	return rate, ix.unreadable(err)
}
