package build

import (
	"errors"
	"os"

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
	if p.direct != nil {
		// EINVAL: the device wants larger pieces, or memory of other places.
		if _, err := p.direct.WriteAt(pages, offset); !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	_, err := p.WriteAt(pages, offset)
	return err
}

func (p *pageFile) read(pages []byte, offset int64) error {
	if p.direct != nil {
		if _, err := p.direct.ReadAt(pages, offset); !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	_, err := p.ReadAt(pages, offset)
	return err
}

// end closes what openPages has opened.
func (p *pageFile) end() {
	if p.direct != nil {
		p.direct.Close() // a failed write has told
	}
}
