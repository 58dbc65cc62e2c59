package index

import (
	"context"
	"encoding/binary"
	"math/bits"

	"golang.org/x/sync/errgroup"

	"blockd/bloom"
)

// filterPart is how much of the filter one part of the hashes falls into: it stays
// in a core's own cache while it is filled.
const filterPart = 256 << 10

// filterBits is how many bits choose the part of a hash, for a filter of blocks.
func filterBits(blocks uint64) uint {
	return uint(min(bits.Len64(blocks*bloom.BlockBytes/filterPart), 10))
}

// fillFilter fills a filter from the low halves of all hashes, by as many
// goroutines as there are lanes.
func fillFilter(ctx context.Context, filter *bloom.Builder, blocks uint64, hashes *scatter) error {
	parts := 1 << hashes.bits
	workers := len(hashes.lanes)
	if blocks < uint64(4*parts) {
		workers = 1 // parts may share more than the block at their border
	}
	buffers := make([][]byte, workers)
	// Parts that are neighbours share a block, so those of even and of odd numbers
	// are filled one behind the other.
	for odd := range 2 {
		group, ctx := errgroup.WithContext(ctx)
		for i := range workers {
			group.Go(func() error {
				for part := odd + 2*i; part < parts; part += 2 * workers {
					if err := ctx.Err(); err != nil {
						return err
					}
					var err error
					if buffers[i], err = hashes.load(buffers[i][:0], part); err != nil {
						return err
					}
					addHashes(filter, buffers[i], hashes.block)
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// addHashes adds the keys of blocks of low halves.
func addHashes(filter *bloom.Builder, b []byte, block int) {
	var batch [bloom.BatchSize]bloom.Hash
	for ; len(b) > 0; b = b[block:] {
		n := 0
		for los := b[scatterHead:blockEnd(b)]; len(los) > 0; los = los[8:] {
			batch[n].Lo = binary.LittleEndian.Uint64(los)
			if n++; n == len(batch) {
				filter.AddBatch(batch[:])
				n = 0
			}
		}
		filter.AddBatch(batch[:n])
	}
}
