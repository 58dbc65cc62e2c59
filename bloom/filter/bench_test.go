package filter

import (
	"testing"

	"blockd/internal/testkit"
)

// A look-up allocates nothing.
func BenchmarkHas(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			f, err := k.new(1_000_000, 0.01)
			testkit.Must(b, err)
			for i := range 1_000_000 {
				f.Add(sender(i))
			}
			key := []byte("promo@bulk.example")
			b.ReportAllocs()
			for b.Loop() {
				f.Has(key)
			}
		})
	}
}

func TestHasAllocatesNothing(t *testing.T) {
	for _, k := range kinds {
		f, err := k.new(1000, 0.01)
		testkit.Must(t, err)
		present, absent := []byte("promo@bulk.example"), []byte("clear@good.example")
		f.Add(present)
		if n := testing.AllocsPerRun(100, func() { f.Has(present); f.Has(absent) }); n > 0 {
			t.Errorf("%s: %v allocations", k.name, n)
		}
	}
}
