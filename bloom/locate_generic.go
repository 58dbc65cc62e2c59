//go:build purego || !(amd64 || arm64)

package bloom

// prefetches tells that locate fetches the blocks, too: Go has no portable way.
const prefetches = false

// locate writes into at the number of the block of each hash, of which there are
// at most BatchSize.
func locate(at *[BatchSize]uint64, blocks []block, hs []Hash) {
	for i, h := range hs {
		at[i] = place(h, uint64(len(blocks)))
	}
}
