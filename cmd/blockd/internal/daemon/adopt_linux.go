package daemon

import "golang.org/x/sys/unix"

// adopt makes this process the parent of those that its successors start, when these end before them.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
