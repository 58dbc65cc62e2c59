package migration

import "golang.org/x/sys/unix"

// boundMemory bounds the memory of a process that has just begun.
func boundMemory(pid int) {
	_ = unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: maxMemory, Max: maxMemory}, nil) // a second bound beside the deadline
}
