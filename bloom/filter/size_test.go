package filter

import (
	"math"
	"testing"
)

func TestSizes(t *testing.T) {
	for _, tt := range []struct {
		n      uint64
		p      float64
		bits   uint64
		hashes int
	}{
		{100_000, 0.01, 958_506, 7},
		{10_000_000, 0.001, 143_775_876, 10},
		{0, 0.5, 2, 1},
	} {
		bits, hashes := ClassicSize(tt.n, tt.p)
		if bits != tt.bits || hashes != tt.hashes {
			t.Errorf("%d at %g: %d bits, %d hashes; want %d, %d", tt.n, tt.p, bits, hashes, tt.bits, tt.hashes)
		}
		if have := ClassicRate(tt.n, bits, hashes); tt.n > 0 && math.Abs(have/tt.p-1) > 0.01 {
			t.Errorf("%d in %d bits: %g, want %g", tt.n, bits, have, tt.p)
		}
	}
}

// The sizes are those of NewBinaryFuse of FastFilter/xorfilter.
func TestFuse8Bits(t *testing.T) {
	for n, octets := range map[uint64]uint64{
		1:        12,
		2:        12,
		3:        24,
		10:       48,
		100:      192,
		1000:     1408,
		12345:    15360,
		100000:   118784,
		1000000:  1130496,
		10000000: 11272192,
	} {
		if have := Fuse8Bits(n); have != octets*8 {
			t.Errorf("%d keys: %d octets, want %d", n, have/8, octets)
		}
	}
}
