package index

import (
	"context"
	"fmt"
	"runtime/debug"
	"unsafe"

	"blockd/index/internal/memory"
)

// mapping is a file mapped for reading. Its memory is not the garbage
// collector's: nothing of it may leave the package.
type mapping struct {
	name string // of the file, for errors
	data []byte
}

// maxFetched is what fetch asks for: the pages of some 17 M addresses. A machine
// that serves more keeps by itself what is asked for.
const maxFetched = 1 << 30

// fetch reads a part of the mapping, as far as it is not in memory, and enters it
// into the process's tables: in huge pages, where the file system has those and all
// of the part is fetched. A look-up finds its way to it sooner then. All of this is
// advice: an error changes no answer.
func (m *mapping) fetch(ctx context.Context, part []byte) {
	const step = 16 << 20 // between two looks at ctx
	if len(part) <= maxFetched {
		memory.AdviseHuge(m.data) // reads of what is not in memory are of 4 MiB from now on
	}
	for part = part[:min(len(part), maxFetched)]; len(part) > 0 && ctx.Err() == nil; part = part[min(len(part), step):] {
		if !memory.Populate(part[:min(len(part), step)]) {
			return // look-ups read what they need
		}
	}
}

// guarded calls read, which may touch the mapping, and turns a memory fault in
// it into an error: when the disk fails or somebody cuts the file off, the
// system answers a read with SIGBUS, which would end the process. The guard
// costs 65 to 95 ns, so it goes around all that a sender needs, not around a
// page. Panics of other kinds and places go on.
func (m *mapping) guarded(read func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if p := recover(); p != nil {
			err = m.fault(p)
		}
	}()
	return read()
}

func (m *mapping) fault(p any) error {
	fault, ok := p.(interface{ Addr() uintptr })
	if !ok || len(m.data) == 0 {
		panic(p)
	}
	offset := fault.Addr() - uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
	if offset >= uintptr(len(m.data)) {
		panic(p)
	}
	return fmt.Errorf("memory fault at offset %d: file cut off, or disk error", offset)
}
