package index

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"blockd/bloom"
)

const (

	// partitionPages is the most that a partition has on average: 1 MiB, so
	// that cutting it into pages stays in a core's cache.
	partitionPages = 256

	// writeback is how much is written before the system is asked to bring it to
	// the disk.
	writeback = 16 << 20
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

// writeFile merges what was taken in and writes the whole file. Close what it returns.
func (b *builder) writeFile(ctx context.Context, f *pageFile, r *Report) (*fileWriter, error) {
	tries := attempts[:]
	if b.SipHash {
		tries = tries[firstSip:]
	}
	var err error
	for i, try := range tries {
		if i > 0 {
			r.Reseeds++
			b.hash = b.hash.next(try.kind)
			if err := b.takeAgain(ctx); err != nil {
				return nil, err
			}
		}
		w := &fileWriter{builder: b, f: f, fill: try.fill}
		if err = w.write(ctx); err == nil {
			r.Keys, r.Entries, r.Duplicates, r.Dropped = w.counts.keys, w.counts.entries, w.counts.duplicates, w.counts.dropped
			r.Bytes, r.FilterBits = int64(w.head.size), w.head.blocks*bloom.BlockBits
			r.Hash = b.in.hash.name()
			return w, nil
		}
		w.close()
		if !errors.Is(err, errCrowded) {
			break
		}
	}
	return nil, err
}

// fileWriter writes one file. Filter, sums and directory lie before the pages but
// are complete only after them, so the pages go first, to where they belong, and
// the header goes last.
type fileWriter struct {
	*builder
	f      *pageFile
	fill   float64
	head   header
	counts merged
	worth  *worthCounter

	reasons reasonTable

	draft  directory  // of the head: what the pages are checked against when they are read back
	hashes *keyHashes // of all keys that were read back
	total  census     // of them
}

// close gives the memory of the hashes back.
func (w *fileWriter) close() {
	if w.hashes != nil {
		w.hashes.close()
	}
}

func (w *fileWriter) write(ctx context.Context) error {
	var err error
	if w.reasons, err = w.in.numberReasons(); err != nil {
		return err
	}
	w.plan()
	w.hashes, err = newKeyHashes(w.Workers*w.f.waits(), w.head.blocks, int64(w.in.counts().entries), w.Memory/2, w.spill)
	if err != nil {
		return err
	}
	if err := w.writePages(ctx); err != nil {
		return err
	}
	if err := w.hooks.at("write"); err != nil {
		return err
	}
	if err := w.writeFilter(ctx); err != nil {
		return err
	}
	if err := w.small(secDirectory, w.draft.append(nil)); err != nil {
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
	if nets := w.counts.nets; len(nets) > 0 {
		if err := w.last(secNetworks, nets.append(nil), uint64(len(nets))); err != nil {
			return err
		}
	}
	if keys := w.counts.patterns; len(keys) > 0 {
		b, err := encodePatterns(keys)
		if err == nil {
			err = w.last(secPatterns, b, uint64(len(keys)))
		}
		if err != nil {
			return err
		}
	}
	if err := w.last(secWorth, w.worth.append(nil), uint64(len(w.worth.lists))); err != nil {
		return err
	}
	if b, rows := encodeDropped(w.rows); rows > 0 {
		if err := w.last(secDropped, b, rows); err != nil {
			return err
		}
	}
	if err := w.f.Truncate(int64(w.head.size)); err != nil {
		return err
	}
	if err := w.hooks.at("header"); err != nil {
		return err
	}
	_, err = w.f.WriteAt(w.head.encode(), 0)
	return err
}

// plan decides sizes and places of everything up to the pages. The number of keys
// is not known before they are merged, so it goes by the number of entries: where
// lists repeat each other there is a hole behind the filter.
func (w *fileWriter) plan() {
	taken := w.in.counts()
	partitions := uint64(1)
	pages := uint64(float64(taken.bytes) / (w.fill * pageRoom))
	for pages/partitions > partitionPages && partitions < maxPartitions {
		partitions *= 2
	}
	w.head = header{
		buildID: w.buildID, hash: w.in.hash, partitions: partitions, kinds: taken.kinds,
		blocks: bloom.Blocks(taken.entries, w.BitsPerKey), built: max(0, w.built.Unix()),
	}
	w.place(secFilter, w.head.blocks*bloom.BlockBytes, w.head.blocks)
	chunks := filterChunks(w.head.blocks * bloom.BlockBytes)
	w.place(secFilterSums, 4*chunks, chunks)
	w.place(secDirectory, partitionBytes*partitions, partitions)
	w.place(secPages, 0, 0) // its length comes with the pages
	w.head.sections[secPages].offset += w.hooks.gap * pageSize
	w.head.sections[secReasons].items = uint64(len(w.reasons.ends))
	w.draft = newDirectory(&w.head)
	w.worth = newWorthCounter(w.rows)
}

// place puts a section behind the one before it.
func (w *fileWriter) place(kind int, length, items uint64) {
	offset := uint64(pageSize)
	if kind > secFilter {
		offset = alignPage(w.head.sections[kind-1].end())
	}
	w.head.sections[kind] = section{offset: offset, length: length, items: items}
}

// last puts a small section behind all others.
func (w *fileWriter) last(kind int, b []byte, items uint64) error {
	w.head.sections[kind] = section{offset: w.head.size, length: uint64(len(b)), items: items}
	w.head.size = alignPage(w.head.sections[kind].end())
	return w.small(kind, b)
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

// writePages merges and writes all records. A unit of work is a partition, or the
// partitions that one part of the records holds: units have nothing in common but
// the order of their pages.
func (w *fileWriter) writePages(ctx context.Context) error {
	defer w.stages.begin("write")()
	unitBits := min(w.draft.shift, w.in.records.bits)
	order := &pageOrder{}
	order.moved.L = &order.mu
	var next atomic.Int64
	writers := make([]*unitWriter, len(w.hashes.lanes))
	group, ctx := errgroup.WithContext(ctx)
	total := int64(float64(w.in.counts().bytes) / w.fill)
	parts := w.in.records.reader(ctx)
	defer parts.end()
	background := newWriteback(w.f.File, int64(w.head.sections[secPages].offset))
	defer background.end()
	for i := range writers {
		u := &unitWriter{w: w, order: order}
		u.merger = merger{in: w.in, parts: parts, shadow: w.shadows(), worth: newWorthCounter(w.rows)}
		u.checker = checker{directory: &w.draft, rows: len(w.rows), later: w.hashes.lane(i).add}
		writers[i] = u
		group.Go(func() error {
			for {
				unit := int(next.Add(1)) - 1
				if unit >= 1<<unitBits {
					return nil
				}
				err := ctx.Err()
				if err == nil {
					err = u.write(unit, unitBits)
				}
				if err != nil {
					order.end()
					if errors.Is(err, errStopped) {
						return nil // another one says why
					}
					return err
				}
				background.wrote(u.end())
				w.progress.report(Progress{Stage: "write", Done: min(total, int64(u.next*pageSize)), Total: total})
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, u := range writers {
		w.counts.add(u.counts)
		w.total.add(u.checker.total)
		w.worth.add(u.worth)
	}
	if err := w.hashes.finish(); err != nil {
		return err
	}
	h := &w.head
	h.pages, h.keys, h.entries, h.expiry = order.page, w.counts.keys, w.counts.entries, w.counts.expiry
	h.sections[secPages].items, h.sections[secPages].length = h.pages, h.pages*pageSize
	return nil
}

// shadows tells of each row whether its list does not count.
func (b *builder) shadows() []bool {
	shadow := make([]bool, len(b.rows))
	for i, row := range b.rows {
		shadow[i] = row.Source.Mode == Shadow
	}
	return shadow
}
