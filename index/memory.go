package index

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// mapHuge returns n octets of zeros from the border of a huge page on, and the
// mapping that they lie in. The garbage collector does not know them, and what is not
// touched of them is not there. The end, less than a huge page, is in small ones, so
// nothing is rounded up.
func mapHuge(n int) (all, mem []byte, err error) {
	all, err = unix.Mmap(-1, 0, n+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(all))) % hugePage
	mem = all[skip : skip+uintptr(n)]
	adviseHuge(mem[:n/hugePage*hugePage])
	return all, mem, nil
}

// unmap gives a mapping back.
func unmap(data []byte) { unix.Munmap(data) } // fails only for what was never mapped

// grow appends n octets, whatever they hold. The memory begins at a page, as reads
// past the system's cache want it: Go gives all that is over 32 KiB whole pages.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		b = slices.Grow(b, max(n, 64<<10))
	}
	return b[:len(b)+n]
}
