package bloom

import "math"

// DefaultBitsPerKey gives 0.54 % false positives. One of them costs a look into
// the store of about 300 ns, so the default adds less than 2 ns a key; a lower
// rate would buy nothing that the larger filter does not cost again in cache.
//
//	bits a key          10      12      16
//	false positives   1.26 %  0.54 %  0.13 %    (TestRateAgreesWithFormula)
const DefaultBitsPerKey = 12

// Blocks returns the number of blocks of a filter for n keys at bitsPerKey: at
// least one, so that a filter without keys answers too.
func Blocks(n uint64, bitsPerKey float64) uint64 {
	return max(1, uint64(math.Ceil(float64(n)*bitsPerKey/BlockBits)))
}

// FalsePositiveRate predicts how often a filter of so many blocks says perhaps
// to a key that is not among its n.
//
// Keys fall on blocks at random, so a block's load is Poisson with mean
// n/blocks, and a block with k keys has each of its lanes' bits set with
// probability 1-(31/32)^k, eight of which must be set. The spread of the loads
// is what makes split blocks worse than one large filter: 0.54 % instead of
// 0.31 % at 12 bits a key.
func FalsePositiveRate(n, blocks uint64) float64 {
	if n == 0 || blocks == 0 {
		return 0
	}
	mean := float64(n) / float64(blocks)
	if mean > 1e6 {
		return 1 // every bit is set long before; the sum below would be slow
	}
	// Ten standard deviations hold all of the distribution that a float64 sees.
	spread := 10*math.Sqrt(mean) + 20
	rate := 0.0
	for k := math.Floor(max(0, mean-spread)); k <= mean+spread; k++ {
		logGamma, _ := math.Lgamma(k + 1)
		load := math.Exp(k*math.Log(mean) - mean - logGamma)
		rate += load * math.Pow(1-math.Pow(31.0/32, k), lanes)
	}
	return min(rate, 1)
}
