//go:build (amd64 || arm64) && !purego

package memory

// Prefetch starts to fetch the line that p is in into the nearest cache. It reads
// nothing: p may be any address.
//
//go:noescape
func Prefetch(p *byte)
