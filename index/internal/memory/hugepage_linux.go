package memory

import "golang.org/x/sys/unix"

// AdviseHuge asks for huge pages. It is advice: where it is not taken, pages are
// small.
func AdviseHuge(mem []byte) {
	if len(mem) > 0 {
		unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
}

// GiveBack gives the memory of whole pages back to the system. Its content is lost.
func GiveBack(mem []byte) {
	unix.Madvise(mem, unix.MADV_DONTNEED)
}

// Populate reads a part of a mapping and enters it into the process's tables. False:
// kernels before 5.14 do not, and one that cannot read it does no further.
func Populate(part []byte) bool { return unix.Madvise(part, unix.MADV_POPULATE_READ) == nil }
