//go:build purego || !(amd64 || arm64)

package index

// prefetch does nothing: Go has no portable way.
func prefetch(*byte) {}
