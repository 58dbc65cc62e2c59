package build

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// directBytes is from how much on pages go past the system's cache. Below, a file is
// of more use in that cache, for whoever serves it next, than it costs.
const directBytes = 64 << 20

// pageFile is how the pages of a draft are written and read back: whole pages, at
// places that are whole pages too.
//
// Past the system's cache, ten million addresses take 0.45 s of the kernel's time,
// and 1.8 s by it: the system must find 600 MB for them, and copy them there and
// back. Nor do they drive out what other programs have there.
type pageFile struct {
	*os.File          // by the system's cache
	direct   *os.File // past it; nil = not at all
}

// openPages makes use of f, for about so many octets of pages. f stays the caller's.
func (b *Builder) openPages(f *os.File, octets uint64) *pageFile {
	p := &pageFile{File: f}
	if octets >= directBytes || b.hooks.Direct {
		p.direct = openDirect(f.Name())
	}
	return p
}

// waits is how many goroutines a core has use for: past the cache, one of two waits
// for the disk.
func (p *pageFile) waits() int {
	if p.direct != nil {
		return 2
	}
	return 1
}

func (p *pageFile) write(pages []byte, offset int64) error {
	return p.try((*os.File).WriteAt, pages, offset)
}

func (p *pageFile) read(pages []byte, offset int64) error {
	return p.try((*os.File).ReadAt, pages, offset)
}

func (p *pageFile) try(call func(f *os.File, b []byte, offset int64) (int, error), pages []byte, offset int64) error {
	if p.direct != nil {
		// EINVAL: the device wants larger pieces, or memory of other places.
		if _, err := call(p.direct, pages, offset); !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	_, err := call(p.File, pages, offset)
	return err
}

// end closes what openPages has opened.
func (p *pageFile) end() {
	if p.direct != nil {
		p.direct.Close() // a failed write has told
	}
}

// writeBehind brings a file to the disk while it is written, so that the sync at
// the end, which must wait for the disk, has little left to wait for.
type writeBehind struct {
	f    *os.File
	busy atomic.Bool // guards from
	from int64       // up to here it was asked for
	all  sync.WaitGroup
}

// wrote says that the file is written up to about end. It never waits: what is not
// said now is said by the next one.
func (b *writeBehind) wrote(end int64) {
	if !b.busy.CompareAndSwap(false, true) {
		return
	}
	if end-b.from < writeback {
		b.busy.Store(false)
		return
	}
	b.all.Go(func() {
		startWriting(b.f, b.from, end-b.from)
		b.from = end
		b.busy.Store(false)
	})
}
