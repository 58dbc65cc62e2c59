package filter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"blockd/internal/testkit"
)

// TestCountingAgainstMultiset adds and removes keys at random. The filter has what a multiset has; it
// removes nothing without proof; and counters that are full stay.
func TestCountingAgainstMultiset(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := testkit.Value(NewCounting(300))(t)
	model := map[string]int{}
	exact := func(key string) bool { return model[key] > 0 }
	for step := range 50_000 {
		key := fmt.Sprintf("%d@bulk.example", random.IntN(1000))
		if random.IntN(2) == 0 && len(model) < 300 {
			c.Add(key)
			model[key]++
			continue
		}
		if had := exact(key); c.Remove(key, exact) != had {
			t.Fatalf("Remove(%s) of one that was put in: %v", key, had)
		} else if model[key]--; model[key] <= 0 {
			delete(model, key)
		}
		for key := range model {
			if step%50 == 0 && !c.Has(key) {
				t.Fatalf("%s is absent, and was added %d times more than removed", key, model[key])
			}
		}
	}
	if c.Remove("never@there.example", func(string) bool { return false }) {
		t.Error("removed without proof")
	}
}

// TestCountingStaysFull adds a key more often than a counter can count: it is never removed again.
func TestCountingStaysFull(t *testing.T) {
	c, _ := NewCounting(1)
	testkit.Equal(t, "counters of an empty filter that are full", c.Saturated(), 0)
	for range 20 {
		c.Add("a@b.example")
	}
	for range 20 {
		if !c.Remove("a@b.example", func(string) bool { return true }) {
			t.Fatal("a full counter was changed")
		}
	}
	if want := 8.0 / 256; !c.Has("a@b.example") || c.Saturated() != want {
		t.Errorf("has %v, saturated %g, want %g", c.Has("a@b.example"), c.Saturated(), want)
	}
}

// TestCountingRate holds the promise of NewCounting.
func TestCountingRate(t *testing.T) {
	const n = 50_000
	c, _ := NewCounting(n)
	for i := range n {
		c.Add(fmt.Sprint("in ", i))
	}
	wrong := 0
	for i := range n {
		if c.Has(fmt.Sprint("out ", i)) {
			wrong++
		}
	}
	if rate := float64(wrong) / n; rate > 0.015 {
		t.Errorf("%g false positives", rate)
	}
	if _, err := NewCounting(1 << 60); err == nil {
		t.Error("a filter for 2^60 keys")
	}
}

// TestScaling grows a filter far beyond its first link, and holds it to a set.
func TestScaling(t *testing.T) {
	s := testkit.Value(NewScaling(100, 0.01))(t)
	const n = 50_000
	for i := range n {
		testkit.Must(t, s.Add(fmt.Append(nil, "in ", i)))
	}
	for i := range n {
		if !s.Has(fmt.Append(nil, "in ", i)) {
			t.Fatalf("key %d is absent", i)
		}
	}
	wrong := 0
	for i := range n {
		if s.Has(fmt.Append(nil, "out ", i)) {
			wrong++
		}
	}
	if rate := float64(wrong) / n; rate > 0.01 {
		t.Errorf("%g false positives, want at most 0.01", rate)
	}
	if len(s.links) != 9 { // 100 (2^9 - 1) = 51,100
		t.Errorf("%d links", len(s.links))
	}
}

func TestScalingIsFullOnce(t *testing.T) {
	s, _ := NewScaling(1, 0.001)
	var err error
	added := 0
	for ; err == nil; added++ {
		err = s.Add(fmt.Append(nil, "in ", added))
	}
	if err != ErrFull || len(s.links) != maxLinks {
		t.Errorf("%v after %d links", err, len(s.links))
	}
	for i := range added - 1 {
		if !s.Has(fmt.Append(nil, "in ", i)) {
			t.Fatalf("key %d is absent", i)
		}
	}
	for _, p := range []float64{0, -1, 1, 1e-14} {
		if _, err := NewScaling(1, p); err == nil {
			t.Errorf("a filter with the rate %g", p)
		}
	}
}

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
