package build

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"blockd/bloom"
	"blockd/index/internal/format"
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
	{format.HashXXH3, 0.8}, {format.HashXXH3, 0.8}, {format.HashXXH3, 0.8},
	{format.HashSip, 0.8}, {format.HashSip, 0.4}, {format.HashSip, 0.2}, {format.HashSip, 0.1}, {format.HashSip, 0.05},
}

const firstSip = 3 // of attempts

// Opened is the file of a build as a reader opens it.
type Opened struct {
	*format.Contents
	Filter func(ctx context.Context) (*bloom.Filter, error) // reads and sums all of it
}

// Write merges what was taken in and writes all of the file f, syncs it, and meanwhile
// checks it as open has opened it.
func (b *Builder) Write(ctx context.Context, f *os.File, r *Report, open func() (Opened, error)) (err error) {
	*r = Report{}
	pages := b.openPages(f, b.in.counted().bytes)
	defer pages.end()
	w, err := b.writeFile(ctx, pages, r)
	if err != nil {
		return err
	}
	defer w.close()
	if err := b.hooks.At("sync"); err != nil {
		return err
	}
	synced := make(chan error, 1)
	go func() { synced <- f.Sync() }()
	defer func() {
		end := b.stages.begin("sync")
		err = cmp.Or(<-synced, err)
		end()
		r.Lists, r.Cached, r.Notes = b.Rows, b.cached, b.Segments.Notes
		r.Stages, r.Spilled, r.PeakMemory = b.stages, b.spill.written(), peakMemory()
	}()
	if err := b.hooks.At("reopen"); err != nil {
		return err
	}
	file, err := open()
	if err != nil {
		return err
	}
	if err := b.hooks.At("verify"); err != nil {
		return err
	}
	return w.check(ctx, file)
}

// writeFile merges what was taken in and writes the whole file. Close what it returns.
func (b *Builder) writeFile(ctx context.Context, f *pageFile, r *Report) (*fileWriter, error) {
	tries := attempts[:]
	if b.SipHash {
		tries = tries[firstSip:]
	}
	var err error
	for i, try := range tries {
		if i > 0 {
			r.Reseeds++
			b.hash = b.hash.Next(try.kind)
			if err := b.takeAgain(ctx); err != nil {
				return nil, err
			}
		}
		w := &fileWriter{Builder: b, f: f, fill: try.fill}
		if err = w.write(ctx); err == nil {
			digests := w.counts.Digests.Sum()
			owners := w.counts.Owners
			r.Keys, r.Entries, r.Digests = w.counts.Keys-digests.Keys-owners.Keys, w.counts.Entries-digests.Entries-owners.Entries, digests.Keys
			r.Owners = owners.Keys
			r.Duplicates, r.Dropped = w.counts.duplicates, w.counts.dropped
			r.Bytes, r.FilterBits = int64(w.head.Size), w.head.Blocks*bloom.BlockBits
			r.Hash = b.in.hash.Name()
			return w, nil
		}
		w.close()
		if !errors.Is(err, format.ErrCrowded) {
			break
		}
	}
	return nil, err
}

// fileWriter writes one file. Filter, sums and directory lie before the pages but
// are complete only after them, so the pages go first, to where they belong, and
// the header goes last.
type fileWriter struct {
	*Builder
	f      *pageFile
	fill   float64
	head   format.Header
	counts merged
	worth  *format.WorthCounter

	reasons format.ReasonTable

	draft  format.Directory // of the head: what the pages are checked against when they are read back
	hashes *keyHashes       // of all keys that were read back
	total  format.Census    // of them
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
	w.hashes, err = newKeyHashes(w.Workers*w.f.waits(), w.head.Blocks, int64(w.in.counted().entries), w.Memory/2, w.spill)
	if err != nil {
		return err
	}
	if err := w.writePages(ctx); err != nil {
		return err
	}
	if err := w.hooks.At("write"); err != nil {
		return err
	}
	if err := w.writeFilter(ctx); err != nil {
		return err
	}
	if err := w.small(format.SecDirectory, w.draft.Append(nil)); err != nil {
		return err
	}
	table, err := format.EncodeTable(w.Rows)
	if err != nil {
		return err
	}
	w.head.Size = format.AlignPage(w.head.Sections[format.SecPages].End())
	if err := w.last(format.SecLists, table, uint64(len(w.Rows))); err != nil {
		return err
	}
	w.place(format.SecReasons, w.reasons.Size(), uint64(len(w.reasons.Ends)))
	sum := crc32.New(format.Castagnoli)
	if err := w.reasons.EncodeTo(io.MultiWriter(w.at(format.SecReasons), sum)); err != nil {
		return err
	}
	w.head.Sections[format.SecReasons].Sum = sum.Sum32()
	w.head.Size = format.AlignPage(w.head.Sections[format.SecReasons].End())
	patterns, err := format.EncodePatterns(w.counts.Patterns)
	if err != nil {
		return err
	}
	dropped, droppedRows := format.EncodeDropped(w.Rows)
	about, aboutRows := format.EncodeAbout(w.Rows)
	digests := format.NewDigestCounts(w.Hashes)
	digests.Add(w.counts.Digests)
	for _, s := range []struct {
		kind  int
		items uint64
		b     []byte
	}{
		{format.SecNetworks, uint64(len(w.counts.Nets)), w.counts.Nets.Append(nil)},
		{format.SecPatterns, uint64(len(w.counts.Patterns)), patterns},
		{format.SecWorth, uint64(len(w.worth.Lists)), w.worth.Append(nil)},
		{format.SecDropped, droppedRows, dropped},
		{format.SecDigests, uint64(len(digests)), digests.Append(nil)},
		{format.SecAbout, aboutRows, about},
	} {
		if s.items == 0 && s.kind != format.SecWorth {
			continue
		}
		if err := w.last(s.kind, s.b, s.items); err != nil {
			return err
		}
	}
	if err := w.f.Truncate(int64(w.head.Size)); err != nil {
		return err
	}
	if err := w.hooks.At("header"); err != nil {
		return err
	}
	_, err = w.f.WriteAt(w.head.Encode(), 0)
	return err
}

// plan decides sizes and places of everything up to the pages. The number of keys
// is not known before they are merged, so it goes by the number of entries: where
// lists repeat each other there is a hole behind the filter.
func (w *fileWriter) plan() {
	taken := w.in.counted()
	partitions := uint64(1)
	pages := uint64(float64(taken.bytes) / (w.fill * format.PageRoom))
	for pages/partitions > partitionPages && partitions < format.MaxPartitions {
		partitions *= 2
	}
	w.head = format.Header{
		BuildID: w.buildID, Hash: w.in.hash, Partitions: partitions, Kinds: taken.Kinds,
		Blocks: bloom.Blocks(taken.entries, w.BitsPerKey), Built: max(0, w.Built.Unix()),
	}
	w.place(format.SecFilter, w.head.Blocks*bloom.BlockBytes, w.head.Blocks)
	chunks := format.FilterChunks(w.head.Blocks * bloom.BlockBytes)
	w.place(format.SecFilterSums, 4*chunks, chunks)
	w.place(format.SecDirectory, format.PartitionBytes*partitions, partitions)
	w.place(format.SecPages, 0, 0) // its length comes with the pages
	w.head.Sections[format.SecPages].Offset += w.hooks.Gap * format.PageSize
	w.head.Sections[format.SecReasons].Items = uint64(len(w.reasons.Ends))
	w.draft = format.NewDirectory(&w.head)
	w.worth = format.NewWorthCounter(w.Rows)
}

// place puts a section behind the one before it.
func (w *fileWriter) place(kind int, length, items uint64) {
	offset := uint64(format.PageSize)
	if kind > format.SecFilter {
		offset = format.AlignPage(w.head.Sections[kind-1].End())
	}
	w.head.Sections[kind] = format.Section{Offset: offset, Length: length, Items: items}
}

// last puts a small section behind all others.
func (w *fileWriter) last(kind int, b []byte, items uint64) error {
	w.head.Sections[kind] = format.Section{Offset: w.head.Size, Length: uint64(len(b)), Items: items}
	w.head.Size = format.AlignPage(w.head.Sections[kind].End())
	return w.small(kind, b)
}

func (w *fileWriter) at(kind int) io.Writer {
	return io.NewOffsetWriter(w.f, int64(w.head.Sections[kind].Offset))
}

// small writes a section that has one sum.
func (w *fileWriter) small(kind int, b []byte) error {
	w.head.Sections[kind].Sum = crc32.Checksum(b, format.Castagnoli)
	_, err := w.at(kind).Write(b)
	return err
}

// writePages merges and writes all records. A unit of work is a partition, or the
// partitions that one part of the records holds: units have nothing in common but
// the order of their pages.
func (w *fileWriter) writePages(ctx context.Context) error {
	defer w.stages.begin("write")()
	unitBits := min(w.draft.Shift, w.in.records.bits)
	order := &pageOrder{}
	order.moved.L = &order.mu
	var next atomic.Int64
	writers := make([]*unitWriter, len(w.hashes.lanes))
	group, ctx := errgroup.WithContext(ctx)
	total := int64(float64(w.in.counted().bytes) / w.fill)
	parts := w.in.records.reader(ctx)
	defer parts.end()
	background := writeBehind{f: w.f.File, from: int64(w.head.Sections[format.SecPages].Offset)}
	defer background.all.Wait()
	for i := range writers {
		u := &unitWriter{w: w, order: order}
		u.merger = merger{in: w.in, parts: parts, rows: w.Rows, worth: format.NewWorthCounter(w.Rows)}
		u.checker = format.Checker{Directory: &w.draft, Rows: len(w.Rows), Later: w.hashes.adder(i)}
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
					order.end(err)
					return err
				}
				background.wrote(u.end())
				w.progress.report(Progress{Stage: "write", Done: min(total, int64(u.next*format.PageSize)), Total: total})
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, u := range writers {
		w.counts.add(u.counts)
		w.total.Add(u.checker.Total)
		w.worth.Add(u.worth)
	}
	if err := w.hashes.finish(); err != nil {
		return err
	}
	h := &w.head
	h.Pages, h.Keys, h.Entries, h.Expiry = order.page, w.counts.Keys, w.counts.Entries, w.counts.expiry
	h.OwnerMask, h.Owners = w.counts.OwnerMask, uint32(w.counts.Owners.Keys)
	h.Sections[format.SecPages].Items, h.Sections[format.SecPages].Length = h.Pages, h.Pages*format.PageSize
	return nil
}

// check checks the file as a reader has opened it. Its pages were read back and checked
// against w when they were written: so the file must say of them what w did. The filter
// that it has is asked for all keys that the pages had.
func (w *fileWriter) check(ctx context.Context, file Opened) error {
	defer w.stages.begin("verify")()
	size := int64(file.Size)
	w.progress.report(Progress{Stage: "verify", Total: size})
	if !bytes.Equal(file.Encode(), w.head.Encode()) {
		return format.Corrupt(0, "the header is not the one that was written")
	}
	if !slices.Equal(file.Parts, w.draft.Parts) {
		return format.Corrupt(file.Sections[format.SecDirectory].Offset, "the directory is not the one that was written")
	}
	filter, err := file.Filter(ctx)
	if err != nil {
		return err
	}
	if err := w.hashes.ask(ctx, w.Workers, filter, file.Sections[format.SecFilter].Offset, w.total.Keys); err != nil {
		return err
	}
	w.progress.report(Progress{Stage: "verify", Done: size, Total: size})
	return file.Holds(w.total)
}
