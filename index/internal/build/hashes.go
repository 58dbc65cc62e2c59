package build

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"blockd/bloom"
	"blockd/index/internal/format"
)

// filterPart is how much of the filter one part of the hashes falls into: it stays
// in a core's own cache while it is filled or asked.
const filterPart = 256 << 10

// keyHashes are the low halves of the hashes of all keys, which is what a filter
// knows of them, in parts of the filter: kept until the number of keys is known.
type keyHashes struct{ *scatter }

// newKeyHashes makes room for about so many keys of a filter of about so many
// blocks, told by so many lanes.
func newKeyHashes(lanes int, blocks uint64, keys, memory int64, file *spillFile) (*keyHashes, error) {
	width := uint(min(bits.Len64(blocks*bloom.BlockBytes/filterPart), 10))
	s, err := newScatter(lanes, width, memory, 8*keys, file)
	if err != nil {
		return nil, err
	}
	return &keyHashes{s}, nil
}

// adder is how the i-th goroutine adds hashes.
func (k *keyHashes) adder(i int) func(hs []bloom.Hash) error {
	l := &k.lanes[i]
	return func(hs []bloom.Hash) error {
		for _, h := range hs {
			b, err := l.add(k.part(h.Lo), 8)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint64(b, h.Lo)
		}
		return nil
	}
}

// each gives batches of all hashes to use, by so many goroutines, of which each has
// a part to itself at any time.
func (k *keyHashes) each(ctx context.Context, workers int, use func(batch []bloom.Hash) error) error {
	group, ctx := errgroup.WithContext(ctx)
	parts := k.reader(ctx)
	defer parts.end()
	var next atomic.Int64
	for range workers {
		group.Go(func() error {
			var buf []byte
			for {
				part := int(next.Add(1)) - 1
				if part >= 1<<k.bits {
					return nil
				}
				err := ctx.Err()
				if err != nil {
					return err
				}
				if buf, err = parts.load(buf[:0], part); err != nil {
					return err
				}
				if err := eachBatch(buf, k.block, use); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// eachBatch goes through the blocks of low halves in b.
func eachBatch(b []byte, block int, use func(batch []bloom.Hash) error) error {
	var batch [bloom.BatchSize]bloom.Hash
	for ; len(b) > 0; b = b[block:] {
		los := b[scatterHead:blockEnd(b)]
		for len(los) > 0 {
			n := 0
			for ; n < len(batch) && len(los) > 0; n++ {
				batch[n].Lo = binary.LittleEndian.Uint64(los)
				los = los[8:]
			}
			if err := use(batch[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill fills a filter of so many blocks.
func (k *keyHashes) fill(ctx context.Context, workers int, filter *bloom.Builder, blocks uint64) error {
	if blocks < 4<<k.bits { // parts may share more than the block at their border
		return k.each(ctx, 1, func(batch []bloom.Hash) error {
			filter.AddBatch(batch)
			return nil
		})
	}
	// Parts that are neighbours share a block: what is that near to a border is put
	// off. Of its part, a hash is at the place that its bits behind those of the part say.
	near := (math.MaxUint64/blocks + 1) << k.bits
	var mu sync.Mutex // guards later
	var later []bloom.Hash
	err := k.each(ctx, workers, func(batch []bloom.Hash) error {
		for i := 0; i < len(batch); {
			if at := batch[i].Lo << k.bits; at+near >= 2*near { // it wraps
				i++
				continue
			}
			mu.Lock()
			later = append(later, batch[i])
			mu.Unlock()
			batch[i] = batch[len(batch)-1]
			batch = batch[:len(batch)-1]
		}
		filter.AddBatch(batch)
		return nil
	})
	for batch := range slices.Chunk(later, bloom.BatchSize) {
		filter.AddBatch(batch)
	}
	return err
}

// errLost reports a fault of this program: what is lost here the filter lacks, too.
var errLost = errors.New("hashes of keys were lost before the filter was asked for them")

// ask asks a filter, which lies at an offset of its file, for all keys, which are so
// many.
func (k *keyHashes) ask(ctx context.Context, workers int, filter *bloom.Filter, offset, keys uint64) error {
	var asked atomic.Uint64
	err := k.each(ctx, workers, func(batch []bloom.Hash) error {
		if filter.HasBatch(batch) != uint32(1<<len(batch)-1) {
			return format.Corrupt(offset, "the filter lacks keys of the store")
		}
		asked.Add(uint64(len(batch)))
		return nil
	})
	if err == nil && asked.Load() != keys {
		return fmt.Errorf("%w: %d of %d are there", errLost, asked.Load(), keys)
	}
	return err
}
