package filter

import (
	"fmt"
	"math"
)

// MinRate is the lowest rate of false positives that a filter is made for.
const MinRate = 1e-15

const ln2 = math.Ln2

// maxBits bounds the filters that New makes, to 128 GiB.
const maxBits = 1 << 40

// maxHashes bounds the hashes of a filter that is read. A rate of 1e-15 needs 50.
const maxHashes = 1 << 16

// ClassicSize is the size of a Bloom filter for n keys and a rate p of false positives:
// -n ln p / (ln 2)^2 bits, and for each key bits/n ln 2 of them.
func ClassicSize(n uint64, p float64) (bits uint64, hashes int) {
	exact := classicBits(n, p)
	return uint64(math.Ceil(exact)), max(1, int(math.Round(exact/float64(max(n, 1))*ln2)))
}

// classicBits is the number of bits before a program rounds it.
func classicBits(n uint64, p float64) float64 {
	return -float64(max(n, 1)) * math.Log(p) / (ln2 * ln2)
}

// ClassicRate is the rate of false positives of a Bloom filter that holds n keys.
func ClassicRate(n, bits uint64, hashes int) float64 {
	k := float64(hashes)
	return math.Pow(-math.Expm1(-k*float64(n)/float64(bits)), k)
}

// Fuse8Rate is the rate of false positives of a binary fuse filter of 8 bits, of any size.
const Fuse8Rate = 1.0 / 256

// Fuse8Bits is the size of a binary fuse filter of 8 bits, as FastFilter/xorfilter lays it
// out: three segments overlap, and the whole is 1.125 octets a key or more.
func Fuse8Bits(n uint64) uint64 {
	const hashes = 3
	size := float64(max(n, 2))
	segment := uint64(4)
	if n > 0 {
		segment = uint64(1) << min(18, int(math.Floor(math.Log(float64(n))/math.Log(3.33)+2.25)))
	}
	capacity := uint64(0)
	if n > 1 {
		capacity = uint64(math.Round(size * max(1.125, 0.875+0.25*math.Log(1e6)/math.Log(size))))
	}
	segments := (capacity + segment - 1) / segment
	return (max(segments, hashes)) * segment * 8
}

// checkBits refuses a filter that is larger than its layout or this program can have.
func checkBits(bits float64, most uint64, layout string) error {
	if most = min(most, maxBits); bits > float64(most) {
		return fmt.Errorf("%.0f bits are needed, and %s has room for %d; want fewer keys or a higher rate", bits, layout, most)
	}
	return nil
}
