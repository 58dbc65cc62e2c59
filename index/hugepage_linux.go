package index

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages. It is advice: where it is not taken, pages are
// small.
func adviseHuge(mem []byte) {
	if len(mem) > 0 {
		unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
}

// giveBack gives the memory of whole pages back to the system. Its content is lost.
func giveBack(mem []byte) {
	unix.Madvise(mem, unix.MADV_DONTNEED)
}

// populate reads a part of a mapping and enters it into the process's tables. False:
// kernels before 5.14 do not, and one that cannot read it does no further.
func populate(part []byte) bool { return unix.Madvise(part, unix.MADV_POPULATE_READ) == nil }
