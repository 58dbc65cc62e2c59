package durable

import (
	"math"

	"golang.org/x/sys/unix"
)

// LeastRoom is what a disk must have, in octets, so that the small files beside an index can be written.
const LeastRoom = 1 << 20

// Room is what is free on the disk of a folder, for who is not root, in octets; full reports that no file can be made
// there.
func Room(folder string) (free int64, full bool, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, false, err
	}
	blocks, size := uint64(max(s.Bavail, 0)), uint64(s.Bsize) // FreeBSD's is below 0 when root alone has room
	if free = int64(math.MaxInt64); size == 0 || blocks <= math.MaxInt64/size {
		free = int64(blocks * size)
	}
	return free, s.Files > 0 && s.Ffree == 0, nil
}
