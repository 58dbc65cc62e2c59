package bloom

import (
	"math/bits"
	"math/rand/v2"
)

// Sample measures how often the filter says perhaps to a key that it does not
// hold, by asking for n random hashes drawn from seed. At 0.54 % and a million
// hashes the result is within 3 % of the truth.
//
// Of 2^64 hashes a filter of 100 million keys holds less than one in 10^11, so
// that a random one is absent.
func (f *Filter) Sample(n int, seed uint64) float64 {
	rng := rand.New(rand.NewPCG(seed, 0))
	var hs [BatchSize]Hash
	perhaps := 0
	for asked := 0; asked < n; asked += BatchSize {
		batch := hs[:min(n-asked, BatchSize)]
		for i := range batch {
			batch[i].Lo = rng.Uint64()
		}
		perhaps += bits.OnesCount32(f.HasBatch(batch))
	}
	return float64(perhaps) / float64(max(n, 1))
}
