package bloom

import (
	"bytes"
	"sync"
	"testing"
)

func TestGrowingHasTheBitsOfAFilter(t *testing.T) {
	b, g := NewBuilder(1000, 12), NewGrowing(1000, 12)
	eachBatch(testSeed.Sum, 0, 1000, func(hs []Hash) {
		b.AddBatch(hs)
		for _, h := range hs {
			g.Add(h)
		}
	})
	f := b.Filter()
	var want, got bytes.Buffer
	f.WriteTo(&want)
	if n, err := g.WriteTo(&got); err != nil || n != int64(got.Len()) || !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Fatalf("WriteTo = %d, %v; other bits than those of a Filter", n, err)
	}
	eachBatch(testSeed.Sum, 500, 5000, func(hs []Hash) {
		if g.HasBatch(hs) != f.HasBatch(hs) {
			t.Fatal("HasBatch differs from that of a Filter")
		}
	})
	key := numbered(7)
	if g.Add(testSeed.Sum(key[:])) {
		t.Error("a key that is there was added")
	}
	if g := Grow(f); g.HasBatch([]Hash{testSeed.Sum(key[:])}) != 1 || g.Blocks() != f.Blocks() {
		t.Error("Grow has lost a key")
	}
}

// TestGrowingWhileAsked is for the race detector, and for the promise that a key is there once Add has returned.
func TestGrowingWhileAsked(t *testing.T) {
	g := NewGrowing(4000, 12)
	var group sync.WaitGroup
	for w := range uint64(4) {
		group.Go(func() {
			for i := range uint64(1000) {
				key := numbered(w*1000 + i)
				h := testSeed.Sum(key[:])
				g.Add(h)
				if g.HasBatch([]Hash{h}) != 1 {
					t.Error("a key that was added is not there")
					return
				}
			}
		})
	}
	group.Wait()
}
