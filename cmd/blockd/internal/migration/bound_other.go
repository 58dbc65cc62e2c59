//go:build !linux

package migration

// boundMemory does nothing: other systems cannot bound another process, and the deadline ends it.
func boundMemory(int) {}
