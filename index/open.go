package index

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"blockd/bloom"
	"blockd/pattern"
)

// partition is one row of the directory.
type partition struct {
	first           uint64 // page
	pages, overflow uint32
}

// Index is one generation, open for look-ups. It never changes, so goroutines
// share it without a lock. It pins its file: replace that file by rename, never
// write into it. The mapping goes when the last reference has gone.
type Index struct {
	mapping mapping
	head    *header
	shift   uint // bits that choose the partition
	filter  sieve
	parts   []partition
	pages   []byte // of the mapping
	usual   int    // records of a page, on average
	reasons []byte // of the mapping
	lists   []ListInfo

	networks networks     // the prefix lengths that occur
	patterns *pattern.Set // nil if there are none
	worth    worthTable
	overlay  *overlay // what has changed since the file; nil: nothing
	held     map[HeldEntry]bool

	generation string // of every verdict, so made once

	summed []uint64 // one bit a page: its sum was right; atomic

	_              [64]byte // what follows changes, what stands above is only read
	asked          atomic.Uint64
	falsePositives atomic.Uint64
	_              [64]byte
}

// Open maps the index file at path and checks header, bounds and the sums of the
// small sections: what does not grow with the number of keys. Filter and pages are
// summed when look-ups first touch them, the filter as a whole by Promote, and all
// by Verify. A damaged file gives an error that wraps ErrCorrupt and names the file.
func Open(path string) (*Index, error) {
	ix, err := openFile(path, path)
	if err != nil {
		return nil, fmt.Errorf("index %s: %w", path, err)
	}
	return ix, nil
}

// openFile opens the file at path, which errors of look-ups call name.
func openFile(path, name string) (*Index, error) {
	// A FIFO must not hold the caller up, hence O_NONBLOCK.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping does not need it
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, corrupt(0, "not a regular file")
	}
	first := make([]byte, pageSize)
	if _, err := f.ReadAt(first, 0); err != nil {
		return nil, readError(err)
	}
	ix := &Index{mapping: mapping{name: name}}
	if ix.head, err = decodeHeader(first, uint64(fi.Size())); err != nil {
		return nil, err
	}
	ix.generation = hex.EncodeToString(ix.head.buildID[:])
	if err := ix.load(f); err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(fi.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	runtime.AddCleanup(ix, unmap, data)
	ix.mapping.data = data
	pages, reasons := ix.head.sections[secPages], ix.head.sections[secReasons]
	filter := ix.head.sections[secFilter]
	ix.filter.load(data[filter.offset:filter.end():filter.end()], filter.offset)
	ix.pages = data[pages.offset:pages.end():pages.end()]
	ix.reasons = data[reasons.offset:reasons.end():reasons.end()]
	if ix.filter.mapped == nil {
		return ix, ix.Promote(context.Background())
	}
	return ix, nil
}

// readError is what a read of the open file gave: it ended too early, or worse.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: file ends too early", ErrCorrupt)
	}
	return fmt.Errorf("%w: %w", ErrRead, err)
}

// load reads everything but pages and reasons into memory. It reads by system
// calls, so that a failing disk is a plain error here.
func (ix *Index) load(f *os.File) error {
	h := ix.head
	for n := h.partitions; n > 1; n /= 2 {
		ix.shift++
	}
	var err error
	if ix.filter.sums, err = readSection(f, h.sections[secFilterSums]); err != nil {
		return err
	}
	directory, err := readSection(f, h.sections[secDirectory])
	if err != nil {
		return err
	}
	if err := ix.loadDirectory(directory); err != nil {
		return err
	}
	table, err := readSection(f, h.sections[secLists])
	if err != nil {
		return err
	}
	if ix.lists, err = decodeTable(table, h.sections[secLists].items); err != nil {
		return corrupt(h.sections[secLists].offset, "%v", err)
	}
	if err := ix.loadNetworks(f); err != nil {
		return err
	}
	if err := ix.loadPatterns(f); err != nil {
		return err
	}
	if err := ix.loadWorth(f); err != nil {
		return err
	}
	if err := ix.loadDropped(f); err != nil {
		return err
	}
	return ix.checkReasons(f)
}

// readSection reads a section whole and checks its sum. The section lies in the
// file, so no more is allocated than the file has.
func readSection(f *os.File, s section) ([]byte, error) {
	b := make([]byte, s.length)
	if _, err := f.ReadAt(b, int64(s.offset)); err != nil {
		return nil, readError(err)
	}
	if sum := crc32.Checksum(b, castagnoli); sum != s.sum {
		return nil, corrupt(s.offset, "section sum %08x, computed %08x", s.sum, sum)
	}
	return b, nil
}

// loadDirectory wants the partitions one behind the other and all pages theirs.
func (ix *Index) loadDirectory(b []byte) error {
	at, next := ix.head.sections[secDirectory].offset, uint64(0)
	ix.parts = make([]partition, ix.head.partitions)
	for i := range ix.parts {
		row := b[i*partitionBytes:]
		p := partition{binary.LittleEndian.Uint64(row), binary.LittleEndian.Uint32(row[8:]), binary.LittleEndian.Uint32(row[12:])}
		if p.first != next || p.pages == 0 && p.overflow > 0 {
			return corrupt(at+uint64(i*partitionBytes), "partition %d begins at page %d, want %d", i, p.first, next)
		}
		ix.parts[i] = p
		next += uint64(p.pages) + uint64(p.overflow)
	}
	if next != ix.head.pages {
		return corrupt(at, "partitions have %d pages, the header has %d", next, ix.head.pages)
	}
	ix.summed = make([]uint64, (ix.head.pages+63)/64)
	ix.usual = int(min(ix.head.keys/max(ix.head.pages, 1), maxRecordsPerPage))
	return nil
}

// checkReasons sums the reasons, which stay in the file, and checks their count.
func (ix *Index) checkReasons(f *os.File) error {
	s := ix.head.sections[secReasons]
	sum := crc32.New(castagnoli)
	if n, err := io.Copy(sum, io.NewSectionReader(f, int64(s.offset), int64(s.length))); err != nil {
		return readError(err)
	} else if uint64(n) != s.length {
		return readError(io.ErrUnexpectedEOF)
	}
	if sum.Sum32() != s.sum {
		return corrupt(s.offset, "section sum %08x, computed %08x", s.sum, sum.Sum32())
	}
	var count [8]byte
	if s.length < reasonHead+8*(s.items+1) {
		return corrupt(s.offset, "%d reasons in %d bytes", s.items, s.length)
	}
	if _, err := f.ReadAt(count[:], int64(s.offset)); err != nil {
		return readError(err)
	}
	if n := binary.LittleEndian.Uint64(count[:]); n != s.items {
		return corrupt(s.offset, "%d reasons, the header has %d", n, s.items)
	}
	return nil
}

// Lists returns the list table in configuration order. Do not change it.
func (ix *Index) Lists() []ListInfo { return ix.lists }

// Generation is the build id in hexadecimal (32 digits), as logs and answers show it.
func (ix *Index) Generation() string { return ix.generation }

// Updated reports whether memory speaks in place of the file for some keys or
// lines: whether the index came from Update.
func (ix *Index) Updated() bool { return ix.overlay != nil }

// Built is when the build began, to the second.
func (ix *Index) Built() time.Time { return time.Unix(ix.head.built, 0) }

// Counts of the index as its header states them.
func (ix *Index) Counts() (keys, entries uint64) { return ix.head.keys, ix.head.entries }

// FalsePositives is how often the filter said perhaps and the store said no
// since Open, with the number of keys that were asked. Approximate under load.
func (ix *Index) FalsePositives() (falsePositives, asked uint64) {
	return ix.falsePositives.Load(), ix.asked.Load()
}

// FalsePositiveRate is the rate that the filter's size and load predict.
func (ix *Index) FalsePositiveRate() float64 {
	return bloom.FalsePositiveRate(ix.head.keys, ix.head.blocks)
}
