// Package memory is what index needs of memory beyond what Go's heap gives: mappings in
// huge pages, advice to the system about them, fetching lines ahead of their use.
package memory

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

const HugePage = 2 << 20

// Huge returns n octets of zeros from the border of a huge page on, and the
// mapping that they lie in. The garbage collector does not know them, and what is not
// touched of them is not there. The end, less than a huge page, is in small ones, so
// nothing is rounded up.
func Huge(n int) (all, mem []byte, err error) {
	all, err = unix.Mmap(-1, 0, n+HugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(all))) % HugePage
	mem = all[skip : skip+uintptr(n)]
	AdviseHuge(mem[:n/HugePage*HugePage])
	return all, mem, nil
}

// Unmap gives a mapping back.
func Unmap(data []byte) { unix.Munmap(data) } // fails only for what was never mapped

// Grow appends n octets, whatever they hold. The memory begins at a page, as reads
// past the system's cache want it: Go gives all that is over 32 KiB whole pages.
func Grow(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		b = slices.Grow(b, max(n, 64<<10))
	}
	return b[:len(b)+n]
}
