//go:build purego || !(amd64 || arm64)

package memory

// Prefetch does nothing: Go has no portable way.
func Prefetch(*byte) {}
