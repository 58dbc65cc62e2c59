package bloom

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"
)

// reserved are so many blocks in addresses that no memory stands behind.
func reserved(t *testing.T, blocks uint64) []block {
	t.Helper()
	mem, err := syscall.Mmap(-1, 0, int(blocks*BlockBytes), syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Skipf("no room for %d blocks in the address space: %v", blocks, err)
	}
	t.Cleanup(func() { syscall.Munmap(mem) })
	return unsafe.Slice((*block)(unsafe.Pointer(unsafe.SliceData(mem))), blocks)
}

// Assembly and Go find the same blocks, at the sizes where 32 bits end, and read
// none of them. With the tag purego both are Go.
func TestLocateAgreesWithPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, blocks := range []uint64{1, 2, 1<<16 - 1, 1 << 16, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<32 + 1} {
		memory := reserved(t, blocks)
		for n := range BatchSize + 1 {
			hs := make([]Hash, n)
			for i := range hs {
				hs[i] = Hash{Hi: rng.Uint64(), Lo: rng.Uint64()}
			}
			if n > 1 {
				hs[0].Lo, hs[1].Lo = 0, 1<<64-1
			}
			const untouched = 1<<64 - 7
			var at [BatchSize]uint64
			for i := range at {
				at[i] = untouched
			}
			locate(&at, memory, hs)
			for i, got := range at {
				want := uint64(untouched)
				if i < n {
					want = place(hs[i], blocks)
				}
				if got != want {
					t.Fatalf("%d blocks: locate puts hash %d of %d into block %d, want %d", blocks, i, n, got, want)
				}
			}
		}
	}
}
