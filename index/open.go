package index

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/index/internal/memory"
	"blockd/lists"
	"blockd/lists/pattern"
)

// Index is one generation, open for look-ups. It never changes, so goroutines
// share it without a lock. It pins its file: replace that file by rename, never
// write into it. The mapping goes when the last reference has gone.
type Index struct {
	mapping  mapping
	file     format.Contents // of an update: with what has changed since
	filter   liveFilter
	pages    []byte       // of the mapping
	usual    int          // records of a page, on average
	reasons  []byte       // of the mapping
	patterns *pattern.Set // nil if there are none
	overlay  *overlay     // what has changed since the file; nil: nothing
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

// Foreign reports whether the file at path has contents that do not begin as those of an index do. An
// index that is damaged further on, or is of another version, is not foreign; nor is a file
// that cannot be read.
func Foreign(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [format.MagicSize]byte
	n, err := io.ReadFull(f, head[:])
	return n > 0 && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) && !format.Begins(head[:n])
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
		return nil, format.Corrupt(0, "not a regular file")
	}
	file, err := format.ReadContents(f, fi.Size())
	if err != nil {
		return nil, err
	}
	ix := &Index{mapping: mapping{name: name}, file: *file, generation: hex.EncodeToString(file.BuildID[:])}
	ix.usual = int(min(file.Keys/max(file.Header.Pages, 1), format.MaxRecordsPerPage))
	ix.summed = make([]uint64, (file.Header.Pages+63)/64)
	if len(file.Patterns) > 0 {
		ix.patterns = pattern.NewSet(file.Patterns)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(fi.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	runtime.AddCleanup(ix, memory.Unmap, data)
	ix.mapping.data = data
	section := func(kind int) []byte {
		s := file.Sections[kind]
		return data[s.Offset:s.End():s.End()]
	}
	ix.filter.load(section(format.SecFilter), file.Sections[format.SecFilter].Offset, file.FilterSums)
	ix.pages, ix.reasons = section(format.SecPages), section(format.SecReasons)
	if ix.filter.mapped == nil {
		return ix, ix.Promote(context.Background())
	}
	return ix, nil
}

// Lists returns the list table in configuration order. Do not change it.
func (ix *Index) Lists() []ListInfo { return ix.file.Lists }

// AnyRead reports whether one of these lists was ever read, and so whether what they together say
// of a sender that is on none is an answer. Of no lists it is true: there is nothing to wait for. A
// list has no row if its path matches no file.
func (ix *Index) AnyRead(names []string) bool {
	return len(names) == 0 || slices.ContainsFunc(ix.Lists(), func(row ListInfo) bool {
		return row.Summary.Verdict != lists.Refused && slices.Contains(names, row.Source.List)
	})
}

// Generation is the build id in hexadecimal (32 digits), as logs and answers show it.
func (ix *Index) Generation() string { return ix.generation }

// Updated reports whether memory speaks in place of the file for some keys or
// lines: whether the index came from Update.
func (ix *Index) Updated() bool { return ix.overlay != nil }

// Built is when the build began, to the second.
func (ix *Index) Built() time.Time { return time.Unix(ix.file.Built, 0) }

// Counts are the numbers of distinct keys that lists have, and of what they say of them. The key of an owned entry
// is one with its owner.
func (ix *Index) Counts() (keys, entries uint64) {
	digests, owners := ix.file.Digests.Sum(), uint64(ix.file.Owners)
	return ix.file.Keys - digests.Keys - owners, ix.file.Entries - digests.Entries - owners
}

// FilterSize is the length of the filter, in octets.
func (ix *Index) FilterSize() uint64 { return ix.file.Sections[format.SecFilter].Length }

// FalsePositives is how often the filter said perhaps and the store said no
// since Open, with the number of keys that were asked. Approximate under load.
func (ix *Index) FalsePositives() (falsePositives, asked uint64) {
	return ix.falsePositives.Load(), ix.asked.Load()
}

// FalsePositiveRate is the rate that the filter's size and load predict.
func (ix *Index) FalsePositiveRate() float64 {
	return bloom.FalsePositiveRate(ix.file.Keys, ix.file.Blocks)
}

// Worth says of every list, in table order, what it holds and what it holds alone.
func (ix *Index) Worth() []ListWorth { return ix.file.Worth.Lists }

// Overlaps are the pairs of lists that have keys in common, in table order of the
// first and then of the second. Counted are the first 362 lists of the table, and
// the first 64 lists that hold a key.
func (ix *Index) Overlaps() []Overlap { return ix.file.Worth.Overlaps }
