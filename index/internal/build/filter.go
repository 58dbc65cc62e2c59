package build

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"

	"blockd/bloom"
	"blockd/index/internal/format"
)

// writeFilter fills the filter, now that the number of keys is known, and writes it
// with its sums.
func (w *fileWriter) writeFilter(ctx context.Context) error {
	defer w.stages.begin("filter")()
	h := &w.head
	h.Blocks = bloom.Blocks(h.Keys, w.BitsPerKey)
	builder := bloom.NewBuilder(h.Keys, w.BitsPerKey)
	if err := w.hashes.fill(ctx, w.Workers, builder, h.Blocks); err != nil {
		return err
	}
	s := &h.Sections[format.SecFilter]
	s.Length, s.Items = h.Blocks*bloom.BlockBytes, h.Blocks
	sums := &chunkSums{w: w.at(format.SecFilter)}
	if _, err := builder.Filter().WriteTo(sums); err != nil {
		return err
	}
	s = &h.Sections[format.SecFilterSums]
	s.Items = format.FilterChunks(h.Blocks * bloom.BlockBytes)
	s.Length = 4 * s.Items
	return w.small(format.SecFilterSums, sums.done())
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
		piece := rest[:min(len(rest), format.ChunkBytes-c.n)]
		c.sum = crc32.Update(c.sum, format.Castagnoli, piece)
		c.n += len(piece)
		if c.n == format.ChunkBytes {
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
