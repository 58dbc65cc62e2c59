//go:build (amd64 || arm64) && !purego

package bloom

// prefetches tells that locate fetches the blocks, too.
const prefetches = true

// locate writes into at the number of the block of each hash, of which there are
// at most BatchSize, and starts to fetch all those blocks into the nearest cache.
// It reads none of them: a prefetch never faults.
//
//go:noescape
func locate(at *[BatchSize]uint64, blocks []block, hs []Hash)
