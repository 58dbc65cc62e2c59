package index

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"

	"blockd/bloom"
)

// writeFilter fills the filter, now that the number of keys is known, and writes it
// with its sums.
func (w *fileWriter) writeFilter(ctx context.Context) error {
	defer w.stages.begin("filter")()
	h := &w.head
	h.blocks = bloom.Blocks(h.keys, w.BitsPerKey)
	builder := bloom.NewBuilder(h.keys, w.BitsPerKey)
	if err := w.hashes.fill(ctx, w.Workers, builder, h.blocks); err != nil {
		return err
	}
	s := &h.sections[secFilter]
	s.length, s.items = h.blocks*bloom.BlockBytes, h.blocks
	sums := &chunkSums{w: w.at(secFilter)}
	if _, err := builder.Filter().WriteTo(sums); err != nil {
		return err
	}
	s = &h.sections[secFilterSums]
	s.items = filterChunks(h.blocks * bloom.BlockBytes)
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
