package index

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
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

// writeFilter fills the filter, now that the number of keys is known, and writes it
// with its sums.
func (w *fileWriter) writeFilter(ctx context.Context) error {
	defer w.stages.begin("filter")()
	h := &w.head
	h.blocks = bloom.Blocks(h.keys, w.BitsPerKey)
	builder := bloom.NewBuilder(h.keys, w.BitsPerKey)
	if err := fillFilter(ctx, builder, h.blocks, w.hashes); err != nil {
		return err
	}
	s := &h.sections[secFilter]
	s.length, s.items = h.blocks*bloom.BlockBytes, h.blocks
	sums := &chunkSums{w: w.at(secFilter)}
	if _, err := builder.Filter().WriteTo(sums); err != nil {
		return err
	}
	s = &h.sections[secFilterSums]
	s.items = filterChunks(h.blocks)
	s.length = 4 * s.items
	return w.small(secFilterSums, sums.done())
}

// chunkSums passes the filter on and sums each chunk of it.
type chunkSums struct {
	w    io.Writer
	sum  uint32
	n    int // bytes of the chunk so far
	sums []byte
}

func (c *chunkSums) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		piece := rest[:min(len(rest), chunkBytes-c.n)]
		c.sum = crc32.Update(c.sum, castagnoli, piece)
		c.n += len(piece)
		if c.n == chunkBytes {
			c.done()
		}
		rest = rest[len(piece):]
	}
	return c.w.Write(b)
}

// done ends the last chunk and returns the section.
func (c *chunkSums) done() []byte {
	if c.n > 0 {
		c.sums = binary.LittleEndian.AppendUint32(c.sums, c.sum)
		c.sum, c.n = 0, 0
	}
	return c.sums
}
