package bloom

import (
	"bytes"
	"math"
	"testing"

	"blockd/internal/testkit"
)

func TestOverAndDecodeAreTheFilterThatWasWritten(t *testing.T) {
	b := NewBuilder(1000, 12)
	eachBatch(testSeed.Sum, 0, 1000, b.AddBatch)
	f := b.Filter()
	var file bytes.Buffer
	testkit.Value(f.WriteTo(&file))(t)
	over, ok := Over(file.Bytes())
	if !ok {
		t.Skip("this machine's byte order is not the file's")
	}
	decoded, ok := Decode(bytes.Clone(file.Bytes()))
	if !ok {
		t.Fatal("Decode refuses what WriteTo wrote")
	}
	for i := range f.blocks {
		if over.blocks[i] != f.blocks[i] || decoded.blocks[i] != f.blocks[i] {
			t.Fatalf("block %d differs", i)
		}
	}
	eachBatch(testSeed.Sum, 500, 1500, func(hs []Hash) {
		if got, want := over.HasBatch(hs), f.HasBatch(hs); got != want {
			t.Fatalf("HasBatch = %b, want %b", got, want)
		}
		for _, h := range hs {
			if at := over.Offset(h); at%BlockBytes != 0 || at >= uint64(file.Len()) {
				t.Fatalf("Offset = %d of %d", at, file.Len())
			}
		}
	})
	decoded.reverse()
	decoded.reverse()
	testkit.Equal(t, "reversed twice is not the same", decoded.blocks[7], f.blocks[7])
	if got, want := (&Filter{blocks: []block{{1: 0x01020304}}}), uint32(0x04030201); true {
		got.reverse()
		testkit.Equal(t, "reverse of 0x01020304", got.blocks[0][1], want)
	}
}

func TestOverRefuses(t *testing.T) {
	mem := make([]byte, 10*BlockBytes)
	for name, bad := range map[string][]byte{
		"nothing": nil, "a part of a block": mem[:BlockBytes+1], "not aligned to lanes": mem[1 : 1+BlockBytes],
	} {
		if _, ok := Over(bad); ok {
			t.Errorf("Over took %s", name)
		}
		if _, ok := Decode(bad); ok {
			t.Errorf("Decode took %s", name)
		}
	}
}

func TestSampleAgreesWithFormula(t *testing.T) {
	const n = 100_000
	for _, bits := range []float64{8, 12} {
		b := NewBuilder(n, bits)
		eachBatch(testSeed.Sum, 0, n, b.AddBatch)
		f := b.Filter()
		got, want := f.Sample(1_000_000, 1), FalsePositiveRate(n, f.Blocks())
		if math.Abs(got/want-1) > 0.1 {
			t.Errorf("%v bits: Sample = %.4f %%, formula says %.4f %%", bits, 100*got, 100*want)
		}
	}
	testkit.Equal(t, "Sample of no hashes", NewBuilder(10, 12).Filter().Sample(0, 1), 0)
}
