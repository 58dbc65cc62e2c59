package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"blockd/bloom"
)

const (
	// chunkBytes is what one sum of the filter covers.
	chunkBytes = 64 << 10

	partitionBytes = 16 // of the directory
	// partitionPages is the most that a partition has on average: 1 MiB, so
	// that cutting it into pages stays in a core's cache.
	partitionPages = 256
)

// attempts are tried one behind the other until no page is crowded. Honest keys
// need the first. Keys chosen against one seed need the second; keys that
// collide under every seed, which nobody has shown for XXH3 and somebody may,
// need SipHash. The emptier pages at the end are for lists of very long records,
// whose number in a page varies most.
var attempts = [...]struct {
	kind uint8
	fill float64 // share of a page that is used on average
}{
	{hashXXH3, 0.8}, {hashXXH3, 0.8}, {hashXXH3, 0.8},
	{hashSip, 0.8}, {hashSip, 0.4}, {hashSip, 0.2}, {hashSip, 0.1}, {hashSip, 0.05},
}

const firstSip = 3 // of attempts

// writeFile merges the buckets and writes the whole file.
func (b *builder) writeFile(ctx context.Context, f *os.File, r *Report) error {
	counts, err := b.mergeAll(ctx)
	if err != nil {
		return err
	}
	r.Keys, r.Entries, r.Duplicates, r.Dropped = counts.keys, counts.entries, counts.duplicates, counts.dropped
	tries := attempts[:]
	if b.SipHash {
		tries = tries[firstSip:]
	}
	for i, try := range tries {
		if i > 0 {
			r.Reseeds++
			b.rehash(b.hash.next(try.kind))
			if _, err := b.mergeAll(ctx); err != nil {
				return err
			}
		}
		w := &fileWriter{builder: b, f: f, counts: counts, fill: try.fill}
		if err = w.write(ctx); !errors.Is(err, errCrowded) {
			r.Bytes, r.FilterBits = int64(w.head.size), w.head.blocks*bloom.BlockBits
			r.Hash = hashName(b.hash.kind)
			return err
		}
	}
	return err
}

// rehash sorts all records into buckets anew, by another hash. It takes
// little memory beside theirs: what one bucket gives up the others use.
func (b *builder) rehash(h hasher) {
	b.hash = h
	old, spare := b.buckets, &spareBlocks{}
	b.buckets = make([]arena, buckets)
	for i := range b.buckets {
		b.buckets[i].spare = spare
	}
	for i := range old {
		for _, record := range old[i].all() {
			b.buckets[h.sum(recordKey(record)).Hi>>(64-bucketBits)].add(record)
		}
		spare.release(&old[i])
	}
}

// mergeAll sorts every bucket and makes one record of each key.
func (b *builder) mergeAll(ctx context.Context) (merged, error) {
	m := merger{hash: b.hash, shadow: make([]bool, len(b.rows))}
	for i, row := range b.rows {
		m.shadow[i] = row.Source.Mode == Shadow
	}
	var counts merged
	for i := range b.buckets {
		if err := ctx.Err(); err != nil {
			return counts, err
		}
		b.report(Progress{Stage: "sort", Done: int64(i), Total: buckets, Entries: b.entries})
		var n merged
		b.buckets[i], n = m.merge(&b.buckets[i])
		counts.add(n)
	}
	return counts, nil
}

// fileWriter writes one file from merged buckets. Filter, sums and directory lie
// before the pages but are complete only after them, so the pages go first, to
// where they belong, and the header goes last.
type fileWriter struct {
	*builder
	f      *os.File
	counts merged
	fill   float64
	shift  uint // bits that choose the partition
	head   header

	filter    *bloom.Builder
	batch     []bloom.Hash
	directory []byte
	group     []placed // of the partition that is being collected
	room      uint64   // that the group needs in pages
	cut       []byte   // its pages
}

func (w *fileWriter) write(ctx context.Context) error {
	w.plan()
	if err := w.writePages(ctx); err != nil {
		return err
	}
	if err := w.hooks.at("write"); err != nil {
		return err
	}
	sums := &chunkSums{w: w.at(secFilter)}
	if _, err := w.filter.Filter().WriteTo(sums); err != nil {
		return err
	}
	if err := w.small(secFilterSums, sums.done()); err != nil {
		return err
	}
	if err := w.small(secDirectory, w.directory); err != nil {
		return err
	}
	var table []byte
	for i, row := range w.rows {
		table = appendRow(table, i, row)
	}
	if len(table) > maxTableBytes {
		return fmt.Errorf("list table of %d bytes, want at most %d", len(table), maxTableBytes)
	}
	w.place(secLists, uint64(len(table)), uint64(len(w.rows)))
	if err := w.small(secLists, table); err != nil {
		return err
	}
	w.place(secReasons, w.reasons.size(), uint64(len(w.reasons.ends)))
	sum := crc32.New(castagnoli)
	if err := w.reasons.writeTo(io.MultiWriter(w.at(secReasons), sum)); err != nil {
		return err
	}
	w.head.sections[secReasons].sum = sum.Sum32()
	w.head.size = alignPage(w.head.sections[secReasons].end())
	if err := w.f.Truncate(int64(w.head.size)); err != nil {
		return err
	}
	if err := w.hooks.at("header"); err != nil {
		return err
	}
	_, err := w.f.WriteAt(w.head.encode(), 0)
	return err
}

// plan decides sizes and places of everything up to the pages.
func (w *fileWriter) plan() {
	partitions := uint64(1)
	pages := uint64(float64(w.counts.bytes) / (w.fill * pageRoom))
	for pages/partitions > partitionPages && partitions < maxPartitions {
		partitions *= 2
		w.shift++
	}
	blocks := bloom.Blocks(w.counts.keys, w.BitsPerKey)
	w.head = header{
		buildID: w.buildID, hash: w.hash, keys: w.counts.keys, entries: w.counts.entries,
		blocks: blocks, partitions: partitions, kinds: w.kinds,
		built: max(0, w.built.Unix()), expiry: w.counts.expiry,
	}
	w.filter = bloom.NewBuilder(w.counts.keys, w.BitsPerKey)
	w.place(secFilter, blocks*bloom.BlockBytes, blocks)
	chunks := (blocks*bloom.BlockBytes + chunkBytes - 1) / chunkBytes
	w.place(secFilterSums, 4*chunks, chunks)
	w.place(secDirectory, partitionBytes*partitions, partitions)
	w.place(secPages, 0, 0) // its length comes with the pages
}

// place puts a section behind the one before it.
func (w *fileWriter) place(kind int, length, items uint64) {
	offset := uint64(pageSize)
	if kind > secFilter {
		offset = alignPage(w.head.sections[kind-1].end())
	}
	w.head.sections[kind] = section{offset: offset, length: length, items: items}
}

func (w *fileWriter) at(kind int) io.Writer {
	return io.NewOffsetWriter(w.f, int64(w.head.sections[kind].offset))
}

// small writes a section that has one sum.
func (w *fileWriter) small(kind int, b []byte) error {
	w.head.sections[kind].sum = crc32.Checksum(b, castagnoli)
	_, err := w.at(kind).Write(b)
	return err
}

// writePages walks over all records in the order of their hash.
func (w *fileWriter) writePages(ctx context.Context) error {
	partition := uint64(0)
	for i := range w.buckets {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.report(Progress{Stage: "write", Done: int64(w.head.pages * pageSize),
			Total: int64(float64(w.counts.bytes) / w.fill), Entries: w.entries})
		for _, record := range w.buckets[i].all() {
			h := w.hash.sum(recordKey(record))
			for p := h.Hi >> (64 - w.shift); partition < p; partition++ {
				if err := w.flush(); err != nil {
					return err
				}
			}
			w.group = append(w.group, placed{h.Hi, record})
			w.room += slotBytes + uint64(len(record))
			if w.batch = append(w.batch, h); len(w.batch) == bloom.BatchSize {
				w.filter.AddBatch(w.batch)
				w.batch = w.batch[:0]
			}
		}
	}
	w.filter.AddBatch(w.batch)
	for ; partition < w.head.partitions; partition++ {
		if err := w.flush(); err != nil {
			return err
		}
	}
	s := &w.head.sections[secPages]
	s.items, s.length = w.head.pages, w.head.pages*pageSize
	return nil
}

// flush writes the collected partition, which may be empty, and its row of the
// directory.
func (w *fileWriter) flush() error {
	pages := uint64(0)
	if w.room > 0 {
		pages = 1 + uint64(float64(w.room)/(w.fill*pageRoom))
	}
	var overflow uint32
	var err error
	if w.cut, overflow, err = cutPages(w.cut, w.group, w.shift, pages); err != nil {
		return err
	}
	first := w.head.pages
	for page := w.cut; len(page) > 0; page = page[pageSize:] {
		binary.LittleEndian.PutUint32(page, pageSum(page[:pageSize], w.head.crcStart(), w.head.pages))
		w.head.pages++
	}
	w.directory = binary.LittleEndian.AppendUint64(w.directory, first)
	w.directory = binary.LittleEndian.AppendUint32(w.directory, uint32(pages))
	w.directory = binary.LittleEndian.AppendUint32(w.directory, overflow)
	w.group, w.room = w.group[:0], 0
	_, err = w.f.WriteAt(w.cut, int64(w.head.sections[secPages].offset+first*pageSize))
	return err
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
