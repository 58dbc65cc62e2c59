//go:build !linux

package builder

import (
	"os"

	"golang.org/x/sys/unix"
)

// program is the path of the one that runs.
func program() string {
	path, _ := os.Executable()
	return path
}

// gentle gives this process the last place at processors.
func gentle() { unix.Setpriority(unix.PRIO_PGRP, 0, 19) }
