package build

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
)

// A filter that was filled from kept hashes is the one that was filled at once, by
// however many goroutines, and is asked for every one of them: also where lists say
// the same so often that it is much smaller than it was planned.
func TestKeptHashesAreTheFilter(t *testing.T) {
	for _, keys := range []int{0, 1, 1000, 300_000} {
		for _, planned := range []uint64{1, 7, 400} { // times the size
			for _, workers := range []int{1, 4} {
				name := fmt.Sprintf("%d keys, planned %d times, %d workers", keys, planned, workers)
				file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), Hooks{})
				defer file.close()
				blocks := bloom.Blocks(uint64(keys), 12)
				k := testkit.Value(newKeyHashes(workers, planned*blocks, int64(keys), 4<<20, file))(t)
				defer k.close()
				rng := rand.New(rand.NewPCG(uint64(keys), 1))
				want := bloom.NewBuilder(uint64(keys), 12)
				batch := make([]bloom.Hash, 10)
				added := uint64(0)
				for i := range keys / len(batch) {
					for j := range batch {
						batch[j].Lo = rng.Uint64()
					}
					want.AddBatch(batch)
					testkit.Must(t, k.adder(i%workers)(batch))
					added += uint64(len(batch))
				}
				testkit.Must(t, k.finish())
				got := bloom.NewBuilder(uint64(keys), 12)
				testkit.Must(t, k.fill(t.Context(), workers, got, blocks))
				var a, b strings.Builder
				full, empty := got.Filter(), bloom.NewBuilder(uint64(keys), 12).Filter()
				want.Filter().WriteTo(&a)
				full.WriteTo(&b)
				if a.String() != b.String() {
					t.Errorf("%s: another filter", name)
				}
				if err := k.ask(t.Context(), workers, full, 0, added); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if err := k.ask(t.Context(), workers, full, 0, added+1); !errors.Is(err, errLost) {
					t.Errorf("%s: one that was lost is not missed: %v", name, err)
				}
				if err := k.ask(t.Context(), workers, empty, 4096, added); added > 0 && !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("%s: an empty filter has all of them: %v", name, err)
				}
			}
		}
	}
}
